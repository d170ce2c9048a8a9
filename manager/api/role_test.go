package api_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/api"
)

func TestRolesPermitCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path string
		needs        api.Role
	}{
		{"GET", "/api/stages", api.RoleRead},
		{"HEAD", "/api/runs/a/logs", api.RoleRead},
		{"POST", "/api/lint", api.RoleRead},
		{"POST", "/below/api/lint", api.RoleRead},
		{"POST", "/api/lint/x", api.RoleOperate},
		{"POST", "/api/runs", api.RoleRun},
		{"POST", "/api/runs/a/answer", api.RoleRun},
		{"POST", "/api/stages/a/abort", api.RoleRun},
		{"POST", "/api/tasks", api.RoleRun},
		{"POST", "/api/abort", api.RoleRun},
		{"DELETE", "/api/runs/a", api.RoleOperate},
		{"PUT", "/api/pipelines/a", api.RoleOperate},
		{"PUT", "/api/limits", api.RoleOperate},
		{"POST", "/api/pause", api.RoleOperate},
		{"POST", "/api/delegates/d/drain", api.RoleOperate},
		{"POST", "/api/schedules/s/trigger", api.RoleOperate},
		{"POST", "/stages", api.RoleOperate},
		{"GET", "/api/agent/delegates/d/task-events", ""},
		{"GET", "/api/v1/api/agent/delegates/d/task-events", ""},
		{"GET", "/api/executions/t/request", ""},
		{"POST", "/api/hooks/a/t", ""},
	} {
		assert.Equal(t, c.needs, api.Needs(c.method, c.path), "%s %s", c.method, c.path)
		assert.False(t, api.Role("root").Permits(c.method, c.path))
		assert.False(t, api.Role("").Permits(c.method, c.path))
		for _, r := range []api.Role{api.RoleRead, api.RoleRun, api.RoleOperate} {
			assert.Equal(t, c.needs != "" && !r.Below(c.needs), r.Permits(c.method, c.path), "%s: %s %s", r, c.method, c.path)
		}
	}
}
