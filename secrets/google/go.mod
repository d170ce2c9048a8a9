module github.com/delegate-io/dlite/secrets/google

go 1.26.0

require (
	github.com/delegate-io/dlite v0.0.0
	github.com/go-jose/go-jose/v4 v4.1.8
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	golang.org/x/oauth2 v0.37.0
)

require (
	cloud.google.com/go/compute/metadata v0.9.0 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

// A build outside the repository ignores these lines and takes the versions above.
replace github.com/delegate-io/dlite => ../..
