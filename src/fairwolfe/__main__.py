from fairwolfe.cli import main

main()
