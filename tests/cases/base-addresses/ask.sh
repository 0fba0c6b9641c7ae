# The addresses that clients make of a base URL with a slash at its end, with /v1 or without, or
# of the whole address pasted as the base URL.
ask() { curl -s -o /dev/null -w "$1: %{http_code}\n" $3 "${URL%/}$2"; }
URL=$1
ask models /v1/models
ask slash /v1//models/
ask twice /v1/v1/models
ask probe /v1/models --head
ask pasted /v1/chat/completions/models
