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
		if p.Module != nil && p.Module.Path != module {
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

// mayImport are the packages of ours that each package may import. The examples
// and this package may import everything.
var mayImport = map[string][]string{
	"logger":        {},
	"logger/otlp":   {},
	"secrets":       {},
	"task":          {},
	"task/stage":    {},
	"task/capacity": {},
	"driver":        {"task", "task/stage"},
	"driver/drivertest": {
		"driver", "task/stage",
	},
	"secrets/env":        {"secrets"},
	"secrets/file":       {"secrets"},
	"secrets/vault":      {"secrets"},
	"secrets/aws":        {"secrets"},
	"secrets/google":     {"secrets"},
	"secrets/azure":      {"secrets"},
	"secrets/kubernetes": {"secrets"},
	"driver/local":       {"driver", "task", "task/stage", "logger", "secrets", "internal/artifact", "internal/gitremote", "internal/process", "internal/recorded"},
	"driver/cgi":         {"task", "task/stage", "logger", "secrets", "internal/artifact", "internal/gitremote", "internal/process"},
	"driver/sidecar":     {"task", "internal/process"},
	"driver/vm":          {"driver", "driver/vm/agent", "driver/vm/agentclient", "task", "task/stage", "logger", "secrets", "internal/atomicfile"},
	"driver/vm/agent":    {"driver", "driver/local", "task", "task/stage", "logger", "secrets"},
	"driver/vm/agentclient": {
		"driver", "driver/vm/agent", "task/stage",
	},
	"driver/vm/vmtest":  {"driver", "driver/vm", "driver/vm/agent", "driver/vm/agentclient", "task/stage"},
	"driver/vm/qemu":    {"driver/vm", "driver/vm/agent", "internal/atomicfile", "internal/process"},
	"driver/vm/libvirt": {"driver/vm", "driver/vm/agent"},
	"driver/vm/observe": {"driver/vm"},
	"driver/vm/ec2":     {"driver/vm", "driver/vm/agent"},
	// A pod runs the same agent as a machine.
	"driver/kubernetes": {
		"driver", "driver/kubernetes/podagent", "driver/vm/agent", "driver/vm/agentclient", "task", "task/stage", "logger", "secrets",
		"internal/recorded",
	},
	"driver/kubernetes/podagent": {"driver", "driver/vm/agent", "task/stage"},
	"internal/artifact":          {"task/stage"},
	"internal/atomicfile":        {},
	"internal/gitremote":         {"task/stage"},
	"internal/process":           {},
	"internal/recorded":          {"driver"},
	"task/transaction":           {"task", "task/stage", "task/capacity", "driver", "logger", "secrets", "internal/atomicfile"},
	"router":                     {"task", "logger", "secrets"},
	"router/tracing":             {"task"},
	"logger/telemetry":           {},
	"poller/observe":             {"poller", "router", "task", "task/capacity", "logger/telemetry"},
	"manager/observe":            {"manager", "manager/queue", "logger/telemetry"},
	"client":                     {"task", "internal/token"},
	"client/clienttest": {
		"client", "task", "internal/token",
	},
	"poller":        {"client", "router", "task", "task/capacity", "logger", "internal/atomicfile"},
	"manager":       {"manager/queue", "manager/queuelog", "manager/journal", "manager/logservice", "task", "task/stage", "internal/token"},
	"manager/queue": {"task", "task/stage"},
	"manager/queuetest": {
		"manager", "manager/journal", "task", "internal/token",
	},
	"manager/journal": {},
	"manager/journal/sqlite": {
		"manager/journal", "internal/atomicfile",
	},
	"manager/journal/redis": {
		"manager/journal",
	},
	"manager/journal/journaltest": {
		"manager/journal",
	},
	"manager/logservice": {"logger"},
	"manager/logservice/logservicetest": {
		"manager/logservice",
	},
	"manager/logservice/redis": {
		"manager/logservice",
	},
	"manager/queuelog": {"logger", "task/stage"},
	"internal/token":   {},
	"internal/testbed": {"driver"},
	// A program of guests, with nothing of ours in it.
	"internal/testbed/spy": {},
	"internal/chaos":       {},
	"internal/conformance": {
		"driver/drivertest",
	},
}

// The packages import each other in the directions that the design allows.
func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range golist(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "examples/") || name == "internal/endtoend" {
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
