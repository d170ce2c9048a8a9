package manager_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
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
		"setup_request":{"group_id":"s1","network":{"id":"n","options":{"pool_id":"big"}},"envs":{"N":12345678901234567890}}}}`, string(got.Data))
	assert.Contains(t, string(got.Data), "12345678901234567890")
	got = s.pass(foreign, "DLITE_CI_VM_EXECUTE_TASK", succeeded)
	assert.JSONEq(t, `{"execute_step_request":{"stage_runtime_id":"s1","task_id":"`+got.ID+`",
		"start_step_request":{"id":"one","name":"one","environment":{},"group_id":"s1","network":"n","run":{"commands":["make"]}}}}`, string(got.Data))
	got = s.pass(foreign, "DLITE_CI_VM_CLEANUP_TASK", succeeded)
	assert.JSONEq(t, `{"stage_runtime_id":"s1"}`, string(got.Data))
	assert.Equal(t, manager.Success, s.ended("s1").Status)

	ours := s.register("ours", []string{"vm_init", "vm_execute", "vm_cleanup", "DLITE_CI_VM_INITIALIZE_TASK"}, "ours")
	s.submit(`{"id":"s2","infra":"vm","selectors":["ours"]}`)
	got = s.pass(ours, "vm_init", succeeded)
	assert.JSONEq(t, `{"envs":{},"group_id":"s2","network":{"id":"s2"}}`, string(got.Data))
	s.pass(ours, "vm_cleanup", succeeded)
	assert.Equal(t, manager.Success, s.ended("s2").Status)
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
