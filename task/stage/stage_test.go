package stage_test

import (
	"encoding/json"
	"testing"

	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wire holds the payloads of docs/protocol.md 3 and 5 with every member, and the
// value of each. A misspelt name fails the tests in both directions.
var wire = map[string]struct {
	text  string
	value any
}{
	"init request": {`{
		"group_id":"g","network":{"id":"n","labels":{"a":"b"},"options":{"c":"d"}},
		"volumes":[
			{"temp":{"id":"v1","name":"vn1","medium":"memory","size_limit":1024,"labels":{"e":"f"}}},
			{"host":{"id":"v2","name":"vn2","path":"/p","create":true,"remove":true,"labels":{"g":"h"},"read_only":true}}],
		"envs":{"K":"V"},"secrets":["s3cret"],
		"log_config":{"account_id":"a","url":"u","token":"t","indirect_upload":true,"trim_new_line_suffix":true,
			"skip_opening_stream":true,"skip_closing_stream":true},
		"log_key":"lk","mount_docker_socket":true,"files":[{"path":"f","mode":420,"data":"x","is_dir":true}]}`,
		&stage.InitRequest{
			GroupID: "g",
			Network: stage.Network{ID: "n", Labels: map[string]string{"a": "b"}, Options: map[string]string{"c": "d"}},
			Volumes: []*stage.Volume{
				{Temp: &stage.TempVolume{ID: "v1", Name: "vn1", Medium: "memory", SizeLimit: 1024, Labels: map[string]string{"e": "f"}}},
				{Host: &stage.HostVolume{
					ID: "v2", Name: "vn2", Path: "/p", Create: true, Remove: true, Labels: map[string]string{"g": "h"}, ReadOnly: true,
				}},
			},
			Envs: map[string]string{"K": "V"}, Secrets: []string{"s3cret"},
			LogConfig: &stage.LogConfig{
				AccountID: "a", URL: "u", Token: "t", IndirectUpload: true, TrimNewLineSuffix: true,
				SkipOpeningStream: true, SkipClosingStream: true,
			},
			LogKey: "lk", MountDockerSocket: true, Files: []*stage.File{{Path: "f", Mode: 0o644, Data: "x", IsDir: true}},
		}},
	"init response": {`{"ip_address":"127.0.0.1","delegate_meta_info":{"id":"d","host_name":"h"},"infra_type":"DOCKER",
		"command_execution_status":"FAILURE","error_message":"no disk","failure_kind":"connectivity"}`,
		&stage.InitResponse{
			IPAddress: "127.0.0.1", DelegateMeta: stage.DelegateMeta{ID: "d", HostName: "h"}, InfraType: "DOCKER",
			Status: stage.Failure, ErrorMessage: "no disk", FailureKind: stage.FailureConnectivity,
		}},
	"execute request": {`{
		"id":"s1","name":"step","stage_runtime_id":"sr","kind":"Run","run":{"entrypoint":["sh","-c"],"commands":["echo"]},
		"detach":true,"environment":{"A":"B"},"working_dir":"/w","timeout":60,"user":"1000:1000","soft_stop":true,
		"log_key":"lk","log_drone":true,"log_config":{"url":"u"},"secrets":["s3cret"],"output_vars":["O"],
		"outputs":[{"key":"k","value":"v","type":"SECRET"}],"output_var_file":"of","secret_var_file":"sf","scratch_dir":"sd",
		"test_report":{"kind":"Junit","junit":{"paths":["**/*.xml"]}},"files":[{"path":"f"}],"volumes":[{"name":"vn","path":"/vp"}],
		"image":"alpine:3","pull":"IfNotPresent","auth":{"address":"r","username":"u","password":"p"},
		"network":"n","networks":["n2"],"network_aliases":["al"],"port_bindings":{"8080":"80"},"dns":["1.1.1.1"],
		"dns_search":["local"],"extra_hosts":["h:1"],"devices":[{"name":"dev","path":"/dev/x"}],"labels":{"l":"m"},
		"privileged":true,"cpu_period":1,"cpu_quota":2,"cpu_shares":3,"cpu_set":["0","1"],"mem_limit":4,"memswap_limit":5,
		"shm_size":6,"mount_docker_socket":true,"process_config":{"kill_process_on_context_cancel":true},
		"step_status":{"endpoint":"e","token":"t","account_id":"a","delegate_id":"d","task_id":"ti","runner_response":true,
			"task_status_v2":true},
		"group_id":"g","volumes_actual":[{"temp":{"id":"v"}}]}`,
		&stage.ExecuteRequest{
			Step: stage.Step{
				ID: "s1", Name: "step", StageRuntimeID: "sr", Kind: "Run",
				Run:    stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo"}},
				Detach: true, Environment: map[string]string{"A": "B"}, WorkingDir: "/w", Timeout: 60, User: "1000:1000", SoftStop: true,
				LogKey: "lk", LogDrone: true, LogConfig: &stage.LogConfig{URL: "u"}, Secrets: []string{"s3cret"},
				OutputVars: []string{"O"}, Outputs: []stage.Output{{Key: "k", Value: "v", Type: stage.OutputSecret}},
				OutputVarFile: "of", SecretVarFile: "sf", ScratchDir: "sd", TestReport: report("Junit", "**/*.xml"),
				Files: []*stage.File{{Path: "f"}}, Volumes: []*stage.VolumeMount{{Name: "vn", Path: "/vp"}},
				Image: "alpine:3", Pull: "IfNotPresent", Auth: &stage.Auth{Address: "r", Username: "u", Password: "p"},
				Network: "n", Networks: []string{"n2"}, NetworkAliases: []string{"al"}, PortBindings: map[string]string{"8080": "80"},
				DNS: []string{"1.1.1.1"}, DNSSearch: []string{"local"}, ExtraHosts: []string{"h:1"},
				Devices: []*stage.DeviceMount{{Name: "dev", DevicePath: "/dev/x"}}, Labels: map[string]string{"l": "m"}, Privileged: true,
				CPUPeriod: 1, CPUQuota: 2, CPUShares: 3, CPUSet: []string{"0", "1"}, MemLimit: 4, MemSwapLimit: 5, ShmSize: 6,
				MountDockerSocket: true, ProcessConfig: &stage.ProcessConfig{KillProcessOnContextCancel: true},
				StepStatus: &stage.StepStatus{
					Endpoint: "e", Token: "t", AccountID: "a", DelegateID: "d", TaskID: "ti", RunnerResponse: true, TaskStatusV2: true,
				},
			},
			GroupID: "g", VolumesActual: []*stage.Volume{{Temp: &stage.TempVolume{ID: "v"}}},
		}},
	"execute response": {`{"command_execution_status":"TIMEOUT","error_message":"late","output_vars":{"a":"b"},
		"outputs":[{"key":"k","value":"v","type":"STRING"}],"artifact":"e30=","exit_code":137,"oom_killed":true,"failure_kind":"image"}`,
		&stage.ExecuteResponse{
			Status: stage.Timeout, ErrorMessage: "late", OutputVars: map[string]string{"a": "b"},
			Outputs:  []stage.Output{{Key: "k", Value: "v", Type: stage.OutputString}},
			Artifact: []byte("{}"), ExitCode: 137, OOMKilled: true, FailureKind: stage.FailureImage,
		}},
	"cleanup request": {`{"group_id":"g","network":"n","volumes":[{"host":{"id":"v"}}],"containers":{"labels":{"a":"b"}},
		"log_config":{"url":"u"},"log_key":"lk"}`,
		&stage.CleanupRequest{
			GroupID: "g", Network: "n", Containers: labelled("a", "b"), Volumes: []*stage.Volume{{Host: &stage.HostVolume{ID: "v"}}},
			LogConfig: &stage.LogConfig{URL: "u"}, LogKey: "lk",
		}},
	"cleanup response": {`{"command_execution_status":"SUCCESS","error_message":"half"}`,
		&stage.CleanupResponse{Status: stage.Success, ErrorMessage: "half"}},
}

// labelled returns the member containers of a cleanup.
func labelled(name, value string) (c struct {
	Labels map[string]string `json:"labels,omitempty"`
}) {
	c.Labels = map[string]string{name: value}
	return c
}

func report(kind string, paths ...string) *stage.TestReport {
	r := &stage.TestReport{Kind: kind}
	r.Junit.Paths = paths
	return r
}

// docs/protocol.md 3 and 5.
func TestWireNamesOfThePayloads(t *testing.T) {
	t.Parallel()
	for name, tc := range wire {
		b, err := json.Marshal(tc.value)
		require.NoError(t, err, name)
		assert.JSONEq(t, tc.text, string(b), name)
	}
	assertDecodes[stage.InitRequest](t, "init request")
	assertDecodes[stage.InitResponse](t, "init response")
	assertDecodes[stage.ExecuteRequest](t, "execute request")
	assertDecodes[stage.ExecuteResponse](t, "execute response")
	assertDecodes[stage.CleanupRequest](t, "cleanup request")
	assertDecodes[stage.CleanupResponse](t, "cleanup response")
}

func assertDecodes[T any](t *testing.T, name string) {
	t.Helper()
	var got T
	require.NoError(t, json.Unmarshal([]byte(wire[name].text), &got), name)
	assert.Equal(t, wire[name].value, &got, name)
}

// docs/protocol.md 5: some agents hang without the environment, and a manager needs
// the status.
func TestRequiredMembersAreAlwaysSent(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"id":"","run":{},"environment":{}}`: stage.Step{Environment: map[string]string{}},
		`{"command_execution_status":""}`:     stage.ExecuteResponse{},
		`{"network":{}}`:                      stage.InitRequest{},
		`{}`:                                  stage.CleanupRequest{},
	} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(b))
	}
}

func TestNetworkIsAnObjectOrItsID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]stage.Network{
		`"n"`:                  {ID: "n"},
		`""`:                   {},
		`null`:                 {},
		`{"id":"n"}`:           {ID: "n"},
		`{"id":"n","more":1}`:  {ID: "n"},
		`{"options":{"a":""}}`: {Options: map[string]string{"a": ""}},
	} {
		var req stage.InitRequest
		require.NoError(t, json.Unmarshal([]byte(`{"network": `+text+`}`), &req), text)
		assert.Equal(t, want, req.Network, text)
	}
	for _, bad := range []string{`5`, `["n"]`, `true`, `{"id":1}`} {
		assert.Error(t, json.Unmarshal([]byte(bad), new(stage.Network)), bad)
	}
	again := stage.Network{ID: "old", Labels: map[string]string{"old": "1"}}
	require.NoError(t, json.Unmarshal([]byte(`"new"`), &again))
	assert.Equal(t, stage.Network{ID: "new"}, again)
}

// Unknown members and nulls never break decoding.
func TestUnknownMembersAndNullsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		new(stage.InitRequest), new(stage.InitResponse), new(stage.ExecuteRequest), new(stage.ExecuteResponse),
		new(stage.CleanupRequest), new(stage.CleanupResponse),
	} {
		assert.NoError(t, json.Unmarshal([]byte(`{"of_the_future":{"a":[1]},"volumes":null,"envs":null,"network":null,
			"environment":null,"output_vars":null,"outputs":null,"log_config":null,"containers":null,"run":null}`), v), "%T", v)
	}
}

// Rule T1: a transaction has several ids.
func TestTransactionIDs(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "g", (&stage.InitRequest{GroupID: "g", Network: stage.Network{ID: "n"}}).TransactionID())
	assert.Equal(t, "n", (&stage.InitRequest{Network: stage.Network{ID: "n"}}).TransactionID())
	assert.Empty(t, (&stage.InitRequest{}).TransactionID())

	assert.Equal(t, []string{"g", "s", "n"},
		(&stage.ExecuteRequest{GroupID: "g", Step: stage.Step{StageRuntimeID: "s", Network: "n"}}).TransactionIDs())
	assert.Equal(t, []string{"n"}, (&stage.ExecuteRequest{Step: stage.Step{Network: "n"}}).TransactionIDs())
	assert.Empty(t, (&stage.ExecuteRequest{}).TransactionIDs())

	assert.Equal(t, []string{"g", "n"}, (&stage.CleanupRequest{GroupID: "g", Network: "n"}).TransactionIDs())
	assert.Equal(t, []string{"n"}, (&stage.CleanupRequest{Network: "n"}).TransactionIDs())
}

// docs/protocol.md 3: every value of command_execution_status.
func TestStatusValues(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []stage.Status{"SUCCESS", "FAILURE", "TIMEOUT", "RUNNING", "QUEUED", "SKIPPED"},
		[]stage.Status{stage.Success, stage.Failure, stage.Timeout, stage.Running, stage.Queued, stage.Skipped})
}
