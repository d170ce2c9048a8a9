package manager_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// Foreign VM delegates get the payloads in an envelope (docs/protocol.md, section
// 3). Our delegates get them directly.
func TestAStageForVMs(t *testing.T) {
	t.Parallel()
	s := start(t)
	const stage = `{"id":"s1","infra":"vm","selectors":["%"],"init":{"network":{"id":"n","options":{"pool_id":"big"}},"envs":{"N":12345678901234567890}},
		"steps":[{"id":"one","data":{"run":{"commands":["make"]}}}]}`
	foreign := s.register("foreign", []string{"DLITE_CI_VM_INITIALIZE_TASK", "DLITE_CI_VM_EXECUTE_TASK", "DLITE_CI_VM_CLEANUP_TASK"}, "%")
	s.submit(stage)
	got := s.pass(foreign, "DLITE_CI_VM_INITIALIZE_TASK", succeeded)
	assert.JSONEq(t, `{"setup_vm_request":{"id":"s1","pool_id":"big","log_key":"","context":{"account_id":"acc"},
		"setup_request":{"group_id":"s1","network":{"id":"n","options":{"pool_id":"big"}},"envs":{"N":12345678901234567890},
		"volumes":[{"host":{"id":"dlite-workspace","name":"dlite-workspace","path":"/tmp/dlite-workspace","create":true,"remove":true}}]}}}`, string(got.Data))
	assert.Contains(t, string(got.Data), "12345678901234567890")
	got = s.pass(foreign, "DLITE_CI_VM_EXECUTE_TASK", succeeded)
	assert.JSONEq(t, `{"execute_step_request":{"stage_runtime_id":"s1","task_id":"`+got.ID+`",
		"start_step_request":{"id":"one","name":"one","environment":{"DLITE_STEP_ID":"one"},"group_id":"s1","run":{"commands":["make"]},
		"timeout":3600,"working_dir":"/tmp/dlite-workspace"}}}`, string(got.Data))
	got = s.pass(foreign, "DLITE_CI_VM_CLEANUP_TASK", succeeded)
	assert.JSONEq(t, `{"stage_runtime_id":"s1","pool_id":"big"}`, string(got.Data))
	assert.Equal(t, api.Success, s.ended("s1").Status)

	ours := s.register("ours", []string{"vm_init", "vm_execute", "vm_cleanup", "DLITE_CI_VM_INITIALIZE_TASK"}, "ours")
	s.submit(`{"id":"s2","infra":"vm","selectors":["ours"]}`)
	got = s.pass(ours, "vm_init", succeeded)
	assert.JSONEq(t, `{"envs":{},"group_id":"s2","network":{"id":"s2"}}`, string(got.Data))
	s.pass(ours, "vm_cleanup", succeeded)
	assert.Equal(t, api.Success, s.ended("s2").Status)
}

// A foreign VM delegate and its agent need members that our own do not: at least one
// variable, the time that is left, an absolute working directory, and the workspace in
// each container. A network on a step would remove the aliases of the services.
func TestStepsHaveTheMembersThatForeignMachinesNeed(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("foreign", []string{"DLITE_CI_VM_INITIALIZE_TASK", "DLITE_CI_VM_EXECUTE_TASK", "DLITE_CI_VM_CLEANUP_TASK"})
	s.submit(`{"id":"s1","infra":"vm","timeout_ms":60000,"init":{"volumes":[{"temp":{"id":"v","name":"v"}}]},"steps":[
		{"id":"empty","data":{"environment":{},"timeout":50}},
		{"id":"image","timeout_ms":1500,"data":{"image":"busybox","environment":{"A":"b"},"working_dir":"sub","volumes":[{"name":"v","path":"/v"}],"timeout":7000}},
		{"id":"windows","data":{"working_dir":"C:\\w"}}]}`)
	var setup struct {
		SetUp struct {
			Request struct{ Volumes []map[string]any } `json:"setup_request"`
		} `json:"setup_vm_request"`
	}
	require.NoError(t, json.Unmarshal(s.pass(id, "DLITE_CI_VM_INITIALIZE_TASK", succeeded).Data, &setup))
	require.Len(t, setup.SetUp.Request.Volumes, 2)
	assert.Contains(t, setup.SetUp.Request.Volumes[0], "temp")
	assert.Contains(t, setup.SetUp.Request.Volumes[1], "host")
	next := func(passes time.Duration) (step map[string]any) {
		var e struct {
			Execute struct {
				Start map[string]any `json:"start_step_request"`
			} `json:"execute_step_request"`
		}
		got := s.take(id, "DLITE_CI_VM_EXECUTE_TASK")
		require.NoError(t, json.Unmarshal(got.Data, &e))
		s.clock.Advance(passes)
		require.Equal(t, 204, s.respond(id, got.ID, succeeded))
		assert.NotContains(t, e.Execute.Start, "network")
		return e.Execute.Start
	}
	step := next(45 * time.Second)
	assert.NotEmpty(t, step["environment"])
	assert.InDelta(t, 50, step["timeout"], 0, "the step's own limit is the shortest")
	assert.Equal(t, "/tmp/dlite-workspace", step["working_dir"])
	step = next(0)
	assert.Equal(t, map[string]any{"A": "b"}, step["environment"])
	assert.InDelta(t, 2, step["timeout"], 0, "seconds are rounded up")
	assert.Equal(t, "/tmp/dlite-workspace/sub", step["working_dir"])
	assert.Len(t, step["volumes"], 2)
	step = next(0)
	assert.InDelta(t, 15, step["timeout"], 0, "the rest of the stage's time")
	assert.Equal(t, `C:\w`, step["working_dir"])
	assert.NotContains(t, step, "volumes")
}

// Rule D7: the init lists the images of the steps, and no value that only the steps
// may see.
func TestTheInitListsImages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"kubernetes_init", "kubernetes_execute", "kubernetes_cleanup"})
	s.submit(`{"id":"s1","infra":"kubernetes","steps":[
		{"id":"plain","data":{"image":"busybox:1","mem_limit":1000,"environment":{"P":"hunter2-not-real"},"secrets":["hunter2-not-real"],
			"run":{"commands":["echo hunter2-not-real"]},"files":[{"path":"f","data":"hunter2-not-real"}]}},
		{"id":"host","data":{"run":{"commands":["true"]}}},
		{"id":"secretive","data":{"image":"private:1","auth":{"password":"${{secrets.registry}}"}}},
		{"id":"computed","data":{"image":"<{ .image }>"}},
		{"id":"last","data":{"id":"named","image":"redis:7","detach":true,"network_aliases":["db"],"auth":{"username":"u","password":"fake-password"}}}]}`)
	got := s.pass(id, "kubernetes_init", succeeded)
	var data struct{ Steps json.RawMessage }
	require.NoError(t, json.Unmarshal(got.Data, &data))
	assert.JSONEq(t, `[{"id":"plain","run":{},"environment":{},"image":"busybox:1","mem_limit":1000},
		{"id":"named","run":{},"environment":{},"image":"redis:7","detach":true,"network_aliases":["db"],
		 "auth":{"username":"u","password":"fake-password"}}]`, string(data.Steps))
	assert.NotContains(t, string(got.Data), "hunter2")
}

func TestAnUnknownInfrastructureIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.call("POST", "/api/stages?accountId=acc", withInit(`{"infra":"mainframe"}`))
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "local, vm or kubernetes")
}
