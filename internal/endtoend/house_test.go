package endtoend_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/delegate-io/dlite"

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

func golist(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Module"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// Who embeds the SDK gets few modules with it, and neither Docker, Kubernetes,
// SQL nor Redis.
func TestTheCorePullsInFewModules(t *testing.T) {
	t.Parallel()
	modules := map[string]bool{}
	for _, p := range golist(t, "-deps", "./client", "./poller", "./router", "./task", "./logger", "./secrets") {
		if p.Module != nil && !strings.HasPrefix(p.Module.Path, module) {
			modules[p.Module.Path] = true
		}
	}
	assert.LessOrEqual(t, len(modules), 12, "%v", modules)
	for m := range modules {
		for _, heavy := range []string{"docker", "k8s.io", "sql", "redis", "chi"} {
			assert.NotContains(t, m, heavy)
		}
	}
}

// A program that runs steps as processes alone, such as an agent in a pod, links no Docker client.
func TestHostStepsNeedNoDocker(t *testing.T) {
	t.Parallel()
	for _, p := range golist(t, "-deps", "./driver/local/host", "./internal/podagent") {
		assert.NotContains(t, p.ImportPath, "docker")
	}
}

// mayImport are the packages of ours that each package may import. The examples
// and this package may import everything.
var mayImport = map[string][]string{
	"logger":                               {},
	"logger/otlp":                          {},
	"logger/telemetry":                     {},
	"secrets":                              {"internal/jsonscan", "secrets/internal/secrettask"},
	"secrets/internal/secrettask":          {},
	"secrets/vault":                        {"secrets", "secrets/internal/secrettask"},
	"secrets/aws":                          {"secrets"},
	"secrets/google":                       {"secrets"},
	"secrets/azure":                        {"secrets"},
	"secrets/kubernetes":                   {"secrets"},
	"task":                                 {"internal/jsonscan"},
	"task/stage":                           {},
	"task/capacity":                        {},
	"driver":                               {"task/stage"},
	"driver/drivertest":                    {"driver", "task/stage"},
	"driver/transaction":                   {"task", "task/stage", "task/capacity", "driver", "logger", "secrets", "internal/atomicfile"},
	"driver/local":                         {"driver", "driver/local/host", "driver/local/docker", "driver/local/internal/steps"},
	"driver/local/host":                    {"driver", "driver/local/internal/steps", "task/stage", "secrets", "internal/artifact", "internal/gitremote", "internal/process", "internal/recorded"},
	"driver/local/docker":                  {"driver", "driver/local/internal/steps", "task/stage", "internal/process", "internal/recorded"},
	"driver/local/internal/steps":          {"driver", "task/stage", "internal/recorded"},
	"driver/agent":                         {"driver", "task", "task/stage", "logger", "secrets"},
	"driver/agent/agentclient":             {"driver", "driver/agent", "task/stage"},
	"driver/vm":                            {"driver", "driver/agent", "driver/agent/agentclient", "task/stage", "internal/atomicfile"},
	"driver/vm/qemu":                       {"driver/vm", "driver/agent", "internal/atomicfile", "internal/process"},
	"driver/vm/libvirt":                    {"driver/vm", "driver/agent"},
	"driver/vm/ec2":                        {"driver/vm", "driver/agent"},
	"driver/vm/internal/vmtest":            {"driver", "driver/vm", "driver/agent", "driver/agent/agentclient", "task/stage"},
	"driver/kubernetes":                    {"driver", "driver/agent", "driver/agent/agentclient", "task/stage", "internal/podagent", "internal/recorded"},
	"driver/cgi":                           {"task", "task/stage", "logger", "secrets", "internal/artifact", "internal/gitremote", "internal/process"},
	"driver/sidecar":                       {"task", "internal/process"},
	"router":                               {"task", "logger"},
	"router/secrets":                       {"task", "router", "secrets"},
	"router/tracing":                       {"task"},
	"client":                               {"task", "internal/token"},
	"client/clienttest":                    {"client", "task", "internal/token"},
	"poller":                               {"client", "router", "task", "task/capacity", "logger", "internal/atomicfile"},
	"poller/metrics":                       {"poller", "router", "task", "task/capacity", "logger/telemetry"},
	"manager":                              {"manager/internal/queue", "manager/internal/queuelog", "manager/internal/journal", "task", "task/stage", "logger/telemetry", "internal/token"},
	"manager/sqlite":                       {"manager/internal/journal", "internal/atomicfile"},
	"manager/redis":                        {"manager/internal/journal"},
	"manager/logservice":                   {"logger", "internal/jsonscan"},
	"manager/logservice/redis":             {"manager/logservice"},
	"manager/internal/queue":               {"task", "task/stage"},
	"manager/internal/queuelog":            {"logger", "task/stage"},
	"manager/internal/queuetest":           {"manager", "manager/internal/journal", "task", "internal/token"},
	"manager/internal/journal":             {},
	"manager/internal/journal/journaltest": {"manager/internal/journal"},
	"manager/internal/logservicetest":      {"manager/logservice"},
	"manager/internal/chaos":               {},
	"internal/artifact":                    {"task/stage"},
	"internal/atomicfile":                  {},
	"internal/docs":                        {},
	"internal/gitremote":                   {"task/stage"},
	"internal/podagent":                    {"driver", "driver/agent", "task/stage"},
	"internal/process":                     {},
	"internal/recorded":                    {"driver"},
	"internal/jsonscan":                    {},
	"internal/token":                       {},
	"internal/testbed":                     {"driver"},
	// A program of guests, with nothing of ours in it.
	"internal/testbed/spy": {},
	"internal/conformance": {"driver/drivertest"},
}

// The packages import each other in the directions that the design allows.
func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}/...")
	cmd.Dir = "../.."
	modules, err := cmd.Output()
	require.NoError(t, err)
	for _, p := range golist(t, strings.Fields(string(modules))...) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "internal/endtoend") {
			continue
		}
		allowed, known := mayImport[name]
		if !assert.True(t, known, "package %s has no place in the design: add it to this test, on purpose", name) {
			continue
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
				assert.True(t, slices.Contains(allowed, ours), "%s must not import %s", name, ours)
			}
		}
	}
}
