package drone

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone/yaml"
)

// variablesOf returns the variables of a stage whose build has members.
func variablesOf(t *testing.T, build string) map[string]string {
	t.Helper()
	d := &details{}
	require.NoError(t, json.Unmarshal([]byte(`{"build":`+build+`,"stage":{"id":1},"repository":{"slug":"octo/hello"},"system":{"proto":"https","host":"drone.example"}}`), d))
	return (&Client{}).variables(d)
}

func TestATagHasItsVersions(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]map[string]string{
		"v2026.11.2-rc1": {
			"DRONE_CALVER": "2026.11.2-rc1", "DRONE_CALVER_SHORT": "2026.11.2", "DRONE_CALVER_MAJOR_MINOR": "2026.11", "DRONE_CALVER_MAJOR": "2026",
			"DRONE_CALVER_MINOR": "11", "DRONE_CALVER_MICRO": "2", "DRONE_CALVER_MODIFIER": "rc1", "DRONE_SEMVER": "2026.11.2-rc1", "DRONE_SEMVER_PRERELEASE": "rc1",
		},
		"26.04":        {"DRONE_CALVER": "26.04", "DRONE_CALVER_SHORT": "26.04", "DRONE_CALVER_MICRO": "", "DRONE_SEMVER": ""},
		"v1.2.3":       {"DRONE_CALVER": "", "DRONE_SEMVER": "1.2.3", "DRONE_SEMVER_MAJOR": "1", "DRONE_SEMVER_ERROR": ""},
		"2026.next":    {"DRONE_CALVER": "", "DRONE_SEMVER": ""},
		"1000.1":       {"DRONE_CALVER": ""},
		"release":      {"DRONE_CALVER": "", "DRONE_TAG": "release"},
		"2026.11.2+b7": {"DRONE_SEMVER_BUILD": "b7", "DRONE_SEMVER_SHORT": "2026.11.2"},
	} {
		v := variablesOf(t, `{"id":1,"event":"tag","ref":"refs/tags/`+tag+`"}`)
		for name, value := range want {
			assert.Equal(t, value, v[name], "%s of %s", name, tag)
		}
	}
}

// A pipeline that runs after another one has failed learns of it.
func TestAFailedStageFailsTheBuild(t *testing.T) {
	t.Parallel()
	v := variablesOf(t, `{"id":1,"event":"push","stages":[{"name":"test","status":"failure"},{"name":"lint","status":"success"},{"name":"notify","status":"running"}]}`)
	assert.Equal(t, "failure", v["DRONE_BUILD_STATUS"])
	assert.Equal(t, "failure", v["CI_BUILD_STATUS"])
	assert.Equal(t, "success", v["DRONE_STAGE_STATUS"])
	assert.Equal(t, "test", v["DRONE_FAILED_STAGES"])
	assert.Equal(t, "success", variablesOf(t, `{"id":1,"stages":[{"name":"test","status":"success"}]}`)["DRONE_BUILD_STATUS"])

	r := &run{details: &details{Build: record{"stages": json.RawMessage(`[{"name":"test","status":"killed"}]`)}}}
	next := r.progressVariables(&step{plan: &yaml.Step{}})
	assert.Equal(t, "failure", next["DRONE_BUILD_STATUS"])
	assert.Equal(t, "success", next["DRONE_STAGE_STATUS"])
}
