package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
)

// Exchange is a call of a server, with its answer.
type Exchange struct {
	Method, URL, Body string
	Header            http.Header
	Status            int
	AnswerHeader      http.Header
	Answer            string
	// Valid means that the request must be valid too.
	Valid bool
}

// CheckOpenAPI checks a description in a file, and calls against it, with an outside validator. The first call on a
// machine builds the validator from its modules.
func CheckOpenAPI(tb testing.TB, file string, exchanges []Exchange) {
	tb.Helper()
	program, err := buildProgram("openapi", ".", "-s -w")
	if err != nil {
		Unavailable(tb, "openapi", "it cannot be built: %v", err)
	}
	var in bytes.Buffer
	for i := range exchanges {
		if err := json.NewEncoder(&in).Encode(&exchanges[i]); err != nil {
			tb.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program, file)
	cmd.Stdin = &in
	out, err := cmd.CombinedOutput()
	tb.Logf("%s", out)
	if err != nil {
		tb.Errorf("the validator: %v", err)
	}
}
