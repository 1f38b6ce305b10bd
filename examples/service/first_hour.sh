#!/usr/bin/env bash
# From an installed fairwolfe to a served decision, a late answer, another objective and an evaluated log.
# In an empty folder: bash first_hour.sh. Each step says after how many seconds it was done.
set -euo pipefail

trap '[ -z "${server:-}" ] || kill "$server" 2>/dev/null || true' EXIT
done_with() { echo "== $1: after $SECONDS s"; }
field() { python -c "import json, sys; print(json.load(sys.stdin)$1)"; }

fairwolfe init router
cd router
sed -i 's/window = "1 min"/window = "4 s"/' config.toml # nobody wants to wait here
done_with "a configuration"

mkfifo ready
fairwolfe serve config.toml >ready 2>service.log &
server=$!
read -r _ address <ready # ready http://127.0.0.1:8710
done_with "a service that is ready"

sed -i "s#http://127.0.0.1:8710#$address#" client.py
python client.py
done_with "300 decisions with feedback"

models="$address/v1/models/router"
ask='{"arms": {"small": {"model": "small"}, "large": {"model": "large"}}, "context": {"task": "chat"}}'
id=$(curl -fsS "$models/decide" -H 'content-type: application/json' -d "$ask" | field '["id"]')
sleep 6
curl -fsS "$models/feedback" -H 'content-type: application/json' \
    -d "[{\"id\": \"$id\", \"rewards\": {\"solved\": 1, \"cents\": 0.4}}]"
echo
done_with "an answer that came late"

curl -fsS -X PUT "$models/objective" -H 'content-type: application/json' -H 'If-Match: "0"' \
    -d "{\"objective\": \"Linear({'solved': 1.0}) + AtMost({'cents': 1.0})\"}"
echo
python client.py
done_with "another objective: one cent instead of two"

sleep 5 # the last window ends
kill "$server"
wait "$server"
server=
fairwolfe log export config.toml router.parquet
printf '[policies.small]\narm = "small"\n[policies.large]\narm = "large"\n' >policies.toml
fairwolfe evaluate router.parquet --policy policies.toml --objective "Linear({'solved': 1.0})"
done_with "what each model alone would have solved"
