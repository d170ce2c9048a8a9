package manager_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// The answers have the forms of both protocols, of our delegates and of foreign ones.
func TestTheKindOfAFailureFollowsFromTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer string
		v2     bool
		kind   api.FailureKind
	}{
		"success":                     {answer: succeeded},
		"exit code":                   {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":2}}`, kind: api.FailureExitCode},
		"exit code in a message":      {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"exit status 2"}}`, kind: api.FailureExitCode},
		"signal of a foreign one":     {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":-1}}`, kind: api.FailureExitCode},
		"out of memory":               {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":137,"oom_killed":true}}`, kind: api.FailureOutOfMemory},
		"image":                       {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"image"}}`, kind: api.FailureImage},
		"connectivity":                {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"connectivity"}}`, kind: api.FailureConnectivity},
		"a kind that does not exist":  {answer: `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"aborted"}}`, kind: api.FailureUnknown},
		"a kind of a success":         {answer: `{"code":"OK","data":{"command_execution_status":"SUCCESS","failure_kind":"image"}}`},
		"time-out in the data":        {answer: `{"code":"OK","data":{"command_execution_status":"TIMEOUT"}}`, kind: api.FailureTimeout},
		"time-out as the code":        {answer: `{"code":"TIMEOUT"}`, kind: api.FailureTimeout},
		"refused payload":             {answer: `{"code":"OK","data":{"error_msg":"no image","code":400}}`, kind: api.FailureRefused},
		"refused by code":             {answer: `{"code":"RETRY_ON_OTHER_DELEGATE"}`, kind: api.FailureRefused},
		"a transaction that is gone":  {answer: `{"code":"FAILED","data":{"error_msg":"cleaned up","code":409}}`, kind: api.FailureDelegateLost},
		"no reason":                   {answer: `{"code":"FAILED"}`, kind: api.FailureUnknown},
		"v2, exit code":               {v2: true, answer: `{"command_execution_status":"FAILURE","exit_code":2}`, kind: api.FailureExitCode},
		"v2, image":                   {v2: true, answer: `{"command_execution_status":"FAILURE","failure_kind":"image"}`, kind: api.FailureImage},
		"v2, error without a payload": {v2: true, answer: `{"error_msg":"no","code":400}`, kind: api.FailureRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := s.open("")
			s.appendSteps("one")
			id := s.take(d, executeTask).ID
			if tc.v2 {
				body := `{"id":"` + id + `","code":"OK","data":"` + base64.StdEncoding.EncodeToString([]byte(tc.answer)) + `"}`
				require.Equal(t, 204, s.call("POST", "/api/executions/"+id+"/response?accountId=acc&delegateId="+d, body).status)
			} else {
				require.Equal(t, 204, s.respond(d, id, tc.answer))
			}
			p, err := s.m.Step(account, "s", "one")
			require.NoError(t, err)
			assert.Equal(t, tc.kind, p.FailureKind)
			s.change("finish")
			s.pass(d, cleanupTask, succeeded)
			assert.Equal(t, tc.kind, s.ended("s").FailureKind)
		})
	}
}

func TestAFailedInitHasAKind(t *testing.T) {
	t.Parallel()
	for answer, kind := range map[string]api.FailureKind{
		`{"code":"OK","data":{"command_execution_status":"FAILURE"}}`:                               api.FailureInfrastructure,
		`{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"connectivity"}}`: api.FailureConnectivity,
		`{"code":"OK","data":{"error_msg":"which pool?","code":400}}`:                               api.FailureRefused,
		`{"code":"FAILED","data":{"error_msg":"git: exit status 128"}}`:                             api.FailureInfrastructure,
		`{"code":"TIMEOUT"}`: api.FailureTimeout,
	} {
		s := start(t)
		d := s.register("d", dockerTypes)
		s.submit(`{"id":"s"}`)
		s.pass(d, initTask, answer)
		s.pass(d, cleanupTask, succeeded)
		assert.Equal(t, kind, s.ended("s").FailureKind, answer)
	}
}
