package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rules D2, S3, S5: the driver gets the clone and a masked log. The credentials are in neither
// the log, the answer, the record nor the steps.
func TestAnInitsCloneAndLogReachTheDriver(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var got *stage.Clone
	w.onInit = func(_ context.Context, env *driver.Environment) error {
		got = env.Clone
		_, _ = fmt.Fprintf(env.Log, "cloning with fake-pass")
		_, _ = fmt.Fprintf(env.Log, "word and fake%%2Fother, fake/other\n")
		return nil
	}
	w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
		assert.Nil(t, env.Clone)
		assert.Nil(t, env.Log)
		_, _ = fmt.Fprintln(out, "later: fake-password")
		return &driver.Result{}, nil
	}
	s := newStages(t, w)
	clone := &stage.Clone{URL: "https://user:fake%2Fother@git.example/x", Auth: &stage.Auth{Username: "user", Password: "fake-password"}}
	r := s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", LogKey: "init-log", Clone: clone})
	require.Equal(t, stage.Success, statusOf(r))
	require.Equal(t, clone, got)
	text, closed := s.logs.get("init-log")
	assert.Equal(t, "cloning with ****** and ******, ******\n", text)
	assert.True(t, closed)
	require.Equal(t, stage.Success, statusOf(s.execute("tx", "step")))
	text, _ = s.logs.get("step")
	assert.Equal(t, "later: ******\n", text)
	for _, path := range s.records() {
		record, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, string(record), "fake")
	}
}

// Rule S3: a failed init writes its reason to its own log, masked, before the log is closed.
func TestAFailedInitSaysWhyInItsLog(t *testing.T) {
	t.Parallel()
	for name, clone := range map[string]*stage.Clone{
		"password":  {URL: "https://git.example/x", Auth: &stage.Auth{Password: "fake-token-1"}},
		"name":      {URL: "https://fake-token-1@git.example/x"},
		"malformed": {URL: "https://user:fake-token-1@git exam%ple"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			w.onInit = func(context.Context, *driver.Environment) error { return errors.New("denied: fake-token-1") }
			s := newStages(t, w)
			r := s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", LogKey: "init-log", Clone: clone})
			require.Equal(t, stage.Failure, statusOf(r))
			assert.NotContains(t, string(r.Data), "fake-token-1")
			text, closed := s.logs.get("init-log")
			assert.Equal(t, "denied: ******\n", text)
			assert.True(t, closed)
		})
	}
}

// An init without output opens no log. The user name in an ssh URL is no secret.
func TestAnInitWithoutOutputOpensNoLog(t *testing.T) {
	t.Parallel()
	s := newStages(t, newFakeDriver())
	r := s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", LogKey: "init-log", Clone: &stage.Clone{URL: "ssh://plain-name@git.example/x"}})
	require.Equal(t, stage.Success, statusOf(r))
	s.logs.mu.Lock()
	require.Empty(t, s.logs.text)
	s.logs.mu.Unlock()
	s.fake.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
		_, _ = fmt.Fprintln(out, "plain-name")
		return &driver.Result{}, nil
	}
	s.execute("tx", "step")
	text, _ := s.logs.get("step")
	require.Equal(t, "plain-name\n", text)
}

// Rules D5, S3: a step's test summary is in its answer, masked. Failed tests do not fail the
// step.
func TestTheAnswerHasTheTestSummary(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	tests := &stage.TestSummary{Total: 3, Passed: 1, Failed: 1, Errors: 1, DurationMillis: 7, Problems: []string{"x-fake-secret.xml"},
		Failures: []stage.TestFailure{{Suite: "fake-secret", Class: "c.fake-secret", Name: "n fake-secret", Message: "want fake-secret"}, {Name: "plain"}}}
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return &driver.Result{Tests: tests}, nil
	}
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", Secrets: []string{"fake-secret"}})
	var answer stage.ExecuteResponse
	require.NoError(t, json.Unmarshal(s.execute("tx", "step").Data, &answer))
	require.Equal(t, stage.Success, answer.Status)
	require.Equal(t, &stage.TestSummary{Total: 3, Passed: 1, Failed: 1, Errors: 1, DurationMillis: 7, Problems: []string{"x-******.xml"},
		Failures: []stage.TestFailure{{Suite: "******", Class: "c.******", Name: "n ******", Message: "want ******"}, {Name: "plain"}}}, answer.Tests)
}
