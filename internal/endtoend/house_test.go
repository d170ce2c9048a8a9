package endtoend_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/delegate-io/dlite"

// listed holds the output of go list for a package.
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

// The packages that a custom runner imports depend on few modules, and not on Docker,
// Kubernetes, SQL or Redis.
func TestTheCorePullsInFewModules(t *testing.T) {
	t.Parallel()
	modules := map[string]bool{}
	for _, p := range golist(t, "-deps", "./client", "./poller", "./router", "./task", "./logger", "./secrets") {
		if p.Module != nil && !strings.HasPrefix(p.Module.Path, module) {
			modules[p.Module.Path] = true
		}
	}
	assert.LessOrEqual(t, len(modules), 14, "%v", modules)
	for m := range modules {
		for _, heavy := range []string{"docker", "k8s.io", "sql", "redis", "chi"} {
			assert.NotContains(t, m, heavy)
		}
	}
}

// A program that runs steps only as processes, such as an agent in a pod, links no Docker
// client.
func TestHostStepsNeedNoDocker(t *testing.T) {
	t.Parallel()
	for _, p := range golist(t, "-deps", "./driver/local/host", "./internal/podagent") {
		assert.NotContains(t, p.ImportPath, "docker")
	}
}

// mayImport lists, for each package, the packages of this project that it may import. A
// package below the internal directory of a package may import the same packages, and packages
// in that directory. Examples and the end-to-end tests may import everything.
var mayImport = map[string][]string{
	"logger":           {"internal/atomicfile", "internal/jsonscan", "internal/logheader", "internal/retryafter", "internal/sealed"},
	"logger/otlp":      {"logger", "internal/retryafter"},
	"logger/telemetry": {"logger", "internal/httpserver"},

	"secrets":            {"internal/dotenv", "internal/jsonscan"},
	"secrets/vault":      {"secrets", "secrets/internal/secrettask"},
	"secrets/aws":        {"secrets"},
	"secrets/google":     {"secrets"},
	"secrets/azure":      {"secrets"},
	"secrets/kubernetes": {"secrets"},

	"task":          {"internal/answers", "internal/jsonscan"},
	"task/stage":    {"internal/jsonscan"},
	"task/capacity": {},

	"task/connector":                  {"task", "logger", "secrets", "internal/source"},
	"task/connector/internal/status":  {"task", "internal/retryafter", "internal/source"},
	"task/connector/internal/sshtest": {"internal/testbed"}, // for tests
	"task/connector/source":           {"task", "secrets", "internal/retryafter", "internal/source"},

	"driver":                       {"task/stage"},
	"driver/drivertest":            {"driver", "task/stage"},
	"driver/transaction":           {"task", "task/stage", "task/capacity", "driver", "logger", "secrets", "internal/atomicfile", "internal/envelope", "internal/outcome", "internal/sealed", "internal/taskkind"},
	"driver/local":                 {"driver", "driver/local/host"},
	"driver/local/host/supervisor": {"driver/local/host/internal/supervisor"},
	"driver/local/host":            {"driver", "task/stage", "secrets", "driver/local/internal/steps", "internal/artifact", "internal/gitremote", "internal/process", "internal/recorded"},
	"driver/local/internal/docker": {"driver", "task/stage", "driver/local/internal/steps", "internal/process", "internal/recorded"},
	"driver/local/internal/steps":  {"driver", "task/stage", "internal/handover", "internal/recorded"},
	"driver/agent":                 {"driver", "task", "task/stage", "logger", "secrets", "internal/envelope", "internal/handover"},
	"driver/vm":                    {"driver", "driver/agent", "task/stage", "internal/atomicfile", "internal/bootport", "internal/imds"},
	"driver/vm/qemu":               {"driver/vm", "driver/vm/internal/provider", "driver/agent", "internal/atomicfile", "internal/process"},
	"driver/vm/libvirt":            {"driver/vm", "driver/vm/internal/provider", "driver/agent"},
	"driver/vm/ec2":                {"driver/vm", "driver/agent"},
	"driver/kubernetes":            {"driver", "driver/agent", "task/stage", "internal/podagent", "internal/recorded"},
	"driver/cgi":                   {"task", "task/stage", "logger", "secrets", "internal/artifact", "internal/gitremote", "internal/process"},
	"driver/daemonset":             {"driver", "task", "task/stage", "logger", "secrets", "internal/atomicfile", "internal/process", "internal/supervise"},
	"driver/sidecar":               {"task", "logger", "secrets", "internal/process", "internal/supervise"},

	"router":         {"task", "logger", "internal/answers", "internal/outcome", "internal/taskkind"},
	"router/secrets": {"task", "router", "secrets", "logger", "internal/answers", "internal/outcome"},
	"router/tracing": {"task", "internal/answers", "internal/outcome", "internal/taskkind"},

	"client":                 {"task", "internal/perpetual", "internal/retryafter", "internal/token"},
	"client/drone":           {"client", "client/drone/yaml", "task", "task/stage", "task/capacity", "logger", "internal/atomicfile"},
	"client/drone/dronetest": {},
	"client/drone/yaml":      {"task/stage"},
	"client/clienttest":      {"client", "task", "task/stage", "internal/answers", "internal/envelope", "internal/perpetual", "internal/taskkind", "internal/token"},
	"internal/clientfaults":  {"client/clienttest", "task"},

	"poller":         {"client", "router", "task", "task/capacity", "logger", "internal/atomicfile", "internal/perpetual", "internal/taskkind"},
	"poller/metrics": {"poller", "router", "task", "task/capacity", "logger/telemetry"},

	"manager":                              {"manager/api", "manager/internal/perpetual", "manager/internal/queue", "manager/internal/queuelog", "manager/internal/journal", "task", "task/stage", "logger/telemetry", "internal/envelope", "internal/httpserver", "internal/jsonscan", "internal/perpetual", "internal/taskkind", "internal/token"},
	"manager/api":                          {"internal/retryafter"},
	"manager/web":                          {"manager/api"},
	"manager/web/oidc":                     {"manager/api", "manager/web"},
	"manager/sqlite":                       {"manager/internal/journal", "internal/atomicfile"},
	"manager/redis":                        {"manager/internal/journal", "manager/internal/livelog"},
	"manager/logservice":                   {"manager/internal/livelog", "logger", "internal/httpserver", "internal/jsonscan", "internal/logheader"},
	"manager/internal/perpetual":           {"internal/perpetual"},
	"manager/internal/queue":               {"task", "task/stage"},
	"manager/internal/queuelog":            {"logger", "task/stage", "internal/logheader", "internal/retryafter"},
	"manager/internal/queuetest":           {"manager", "manager/api", "manager/internal/journal", "task", "internal/perpetual", "internal/token"},
	"manager/internal/journal":             {},
	"manager/internal/journal/journaltest": {"manager/internal/journal"},
	"manager/internal/livelog":             {},
	"manager/internal/logservicetest":      {"manager/internal/livelog"},
	"manager/internal/chaos":               {},

	"manager/pipeline":                     {"manager", "manager/api", "logger", "task", "task/stage", "internal/source", "internal/token"},
	"manager/pipeline/internal/definition": {"manager/pipeline/internal/expression"},
	"manager/pipeline/internal/expression": {},
	"manager/pipeline/internal/engine":     {"manager/pipeline/internal/definition", "manager/pipeline/internal/expression"},
	"manager/pipeline/internal/steps":      {"manager/api", "manager/pipeline/internal/definition", "manager/pipeline/internal/engine", "manager/pipeline/internal/expression", "task", "task/stage", "internal/source"},
	"manager/pipeline/internal/store":      {},
	"manager/pipeline/streams":             {"manager/pipeline/internal/store", "manager/redis"},
	"manager/pipeline/internal/trigger":    {"internal/source"},

	"internal/answers":    {},
	"internal/artifact":   {"task/stage"},
	"internal/bootport":   {},
	"internal/atomicfile": {},
	"internal/docs":       {},
	"internal/dotenv":     {},
	"internal/envelope":   {"task/stage"},
	"internal/gitremote":  {"task/stage"},
	"internal/handover":   {"driver", "task/stage", "internal/dotenv"},
	"internal/httpserver": {},
	"internal/imds":       {},
	"internal/jsonscan":   {},
	"internal/logheader":  {},
	"internal/outcome":    {"task"},
	"internal/perpetual":  {"task"},
	"internal/podagent":   {"driver", "driver/agent", "task/stage"},
	"internal/process":    {},
	"internal/recorded":   {"driver"},
	"internal/retryafter": {},
	"internal/source":     {},
	"internal/sealed":     {"internal/atomicfile"},
	"internal/supervise":  {"internal/process"},
	"internal/taskkind":   {"task"},
	"internal/token":      {},

	// Packages for tests only.
	"internal/testbed":     {"driver"},
	"internal/testbed/spy": {},
	"internal/conformance": {},
	"internal/plot":        {},
	"internal/release":     {},
}

// importRule returns the entry of mayImport for a package.
func importRule(name string) (allowed []string, known bool) {
	if allowed, known = mayImport[name]; known {
		return allowed, true
	}
	parent, _, internal := strings.Cut(name, "/internal/")
	if !internal {
		return nil, false
	}
	allowed, known = mayImport[parent]
	return append(slices.Clone(allowed), parent), known
}

// The packages import each other only as mayImport allows.
func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range golist(t, workspacePatterns(t)...) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "internal/endtoend") {
			continue
		}
		used[name] = true
		allowed, known := importRule(name)
		if !assert.True(t, known, "package %s has no place in the design: add it to this test, on purpose", name) {
			continue
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok && !strings.HasPrefix(ours, name+"/internal/") {
				assert.True(t, slices.Contains(allowed, ours), "%s must not import %s", name, ours)
			}
		}
	}
	assert.Contains(t, used, "client")
}

func workspacePatterns(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}/...")
	cmd.Dir = "../.."
	modules, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(modules))
}

// The limits of the public API. Each is the value that the project has reached. Lower them
// when packages or names are removed. Raise them only with a reason in the commit.
const (
	mostPackages           = 47
	mostNames              = 599
	mostDirectRequirements = 25 // of the root module
)

// There are few public packages and few exported names. With -v the test prints a table of
// them.
func TestTheSurfaceStaysSmall(t *testing.T) {
	t.Parallel()
	const root = "../.."
	names := map[string]map[string]bool{} // by package
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"examples", "internal", "testdata", "bin"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil || parsed.Name.Name == "main" {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if names[dir] == nil {
			names[dir] = map[string]bool{}
		}
		for _, name := range exportedNames(parsed) {
			names[dir][name] = true
		}
		return err
	})
	require.NoError(t, err)
	total := 0
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		t.Logf("%4d %s", len(names[dir]), dir)
		total += len(names[dir])
	}
	t.Logf("%4d names in %d packages", total, len(names))
	assert.LessOrEqual(t, len(names), mostPackages, "public packages")
	assert.LessOrEqual(t, total, mostNames, "exported names at the top level of public packages")
}

// exportedNames lists the functions, types, variables and constants that a file exports.
func exportedNames(file *ast.File) []string {
	var idents []*ast.Ident
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				idents = append(idents, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					idents = append(idents, s.Name)
				case *ast.ValueSpec:
					idents = append(idents, s.Names...)
				}
			}
		}
	}
	var names []string
	for _, i := range idents {
		if i.IsExported() {
			names = append(names, i.Name)
		}
	}
	return names
}

// The root module requires few modules directly.
func TestTheRootModuleRequiresLittle(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	var mod struct{ Require []struct{ Indirect bool } }
	require.NoError(t, json.Unmarshal(out, &mod))
	direct := 0
	for _, r := range mod.Require {
		if !r.Indirect {
			direct++
		}
	}
	assert.LessOrEqual(t, direct, mostDirectRequirements)
}
