//go:build unix

package local_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// pluginStep returns a step whose plugin is a script on a real server.
func pluginStep(t *testing.T, script string) stage.Step {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(script))
	}))
	t.Cleanup(srv.Close)
	sum := sha256.Sum256([]byte(script))
	return stage.Step{ID: "plugin", Plugin: &stage.Plugin{Executables: []stage.Executable{
		{OS: "plan9", Arch: "mips", URL: srv.URL + "/other", SHA256: strings.Repeat("0", 64)},
		{OS: runtime.GOOS, Arch: runtime.GOARCH, URL: srv.URL + "/plugin", SHA256: hex.EncodeToString(sum[:])},
	}}}
}

// Rule D4: a plugin is a host step with its settings in PLUGIN_ variables.
func TestPluginStepRunsOnTheHost(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	r := newRig(t, withPluginCache(cache)).init()
	r.env.Envs = map[string]string{"SHARED": "stage"}
	step := pluginStep(t, `#!/bin/sh
echo "$1|$2|$PLUGIN_WEB_HOOK_URL|$PLUGIN_NAME|$SHARED|$STEP|$(pwd)"
echo out=1 >> $DRONE_OUTPUT
echo '{"kind":"fake"}' > $PLUGIN_ARTIFACT_FILE
exit 5
`)
	step.Plugin.Args = []string{"a b", "c"}
	step.Plugin.Settings = map[string]string{"web-hook.url": "https://x", "name": "from settings"}
	step.Environment = map[string]string{"STEP": "step", "PLUGIN_NAME": "from environment"}
	step.WorkingDir = "sub"
	res, out := r.run(step)
	require.Equal(t, 5, res.ExitCode)
	require.Contains(t, out, "a b|c|https://x|from settings|stage|step|"+workspace(r)+"/sub\n")
	require.Equal(t, "1", res.Outputs["out"])
	require.Equal(t, "{\"kind\":\"fake\"}\n", string(res.Artifact))
	require.Contains(t, out, "Fetching the plugin from http://127.0.0.1:")
	_, out = r.run(step)
	require.NotContains(t, out, "Fetching")
	info, err := os.Stat(cache)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "the driver runs the programs in it")
}

func TestPluginStepRunsAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root can run steps as other users")
	}
	r := newRig(t, withPluginCache(filepath.Join(t.TempDir(), "cache"))).init()
	step := pluginStep(t, "#!/bin/sh\nid -u\n")
	step.User = "54321"
	res, out := r.run(step)
	require.Zero(t, res.ExitCode)
	require.Contains(t, out, "54321\n")
}

func TestPluginStepIsChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPluginCache(filepath.Join(t.TempDir(), "cache"))).init()
	for want, change := range map[string]func(*stage.Step){
		"has an image":       func(s *stage.Step) { s.Image = "busybox" },
		"a plugin and a run": func(s *stage.Step) { s.Run.Entrypoint = []string{"sh"} },
		"no program for " + runtime.GOOS + "/" + runtime.GOARCH + "; there is plan9/mips": func(s *stage.Step) {
			s.Plugin.Executables = s.Plugin.Executables[:1]
		},
		"there is nothing":                      func(s *stage.Step) { s.Plugin.Executables = nil },
		"64 hexadecimal digits":                 func(s *stage.Step) { s.Plugin.Executables[1].SHA256 = "" },
		"must be 64":                            func(s *stage.Step) { s.Plugin.Executables[1].SHA256 = strings.Repeat("g", 64) },
		"begin with http:// or https:/":         func(s *stage.Step) { s.Plugin.Executables[1].URL = "file:///etc/passwd" },
		"url must begin":                        func(s *stage.Step) { s.Plugin.Executables[1].URL = "https:///no-host" },
		"has the variable PLUGIN_A_B":           func(s *stage.Step) { s.Plugin.Settings = map[string]string{"a.b": "1", "A-B": "2"} },
		"has the variable PLUGIN_ARTIFACT_FILE": func(s *stage.Step) { s.Plugin.Settings = map[string]string{"artifact-file": "1"} },
		"is not valid":                          func(s *stage.Step) { s.Plugin.Settings = map[string]string{"a=b": "1"} },
		"the server answers 404":                func(s *stage.Step) { s.Plugin.Executables[1].URL = notFound(t) },
	} {
		step := pluginStep(t, "#!/bin/sh\n# "+want) // a different script each time, because plugins are cached
		change(&step)
		_, err := r.fail(step)
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, r.ledger.ofKind("process"))
}

func TestAPluginMayBeAProgramOfTheDelegate(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]option{"beside the delegate": nil, "separated": {separated()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, append(options, func(c *local.Config) { c.Host.Builtins = map[string][]string{"ours": {builtinArgument, "first"}} })...)
			r.env.Volumes = []*stage.Volume{{Temp: &stage.TempVolume{Name: "modules"}}}
			r.init()
			step := stage.Step{ID: "builtin", Volumes: []*stage.VolumeMount{{Name: "modules", Path: "/go/pkg"}}, Plugin: &stage.Plugin{
				Builtin: "ours", Args: []string{"second"}, Settings: map[string]string{"name": "n"},
			}}
			if name == "separated" && os.Geteuid() == 0 {
				step.User = "54321" // this user cannot reach the test binary by its path
			}
			res, out := r.run(step)
			require.Equal(t, 5, res.ExitCode, out)
			require.Contains(t, out, "[first second] n ")
			require.Contains(t, out, `"/workspace":"`+workspace(r)+`"`)
			require.Regexp(t, `"/go/pkg":"`+r.work+`/.*/volumes/modules`, out)

			step.Plugin = &stage.Plugin{Builtin: "other"}
			_, err := r.fail(step)
			require.ErrorContains(t, err, `no program "other"`)
			step.Plugin = &stage.Plugin{Builtin: "ours", Executables: []stage.Executable{{OS: "linux"}}}
			_, err = r.fail(step)
			require.ErrorContains(t, err, "builtin and executables")
		})
	}
}

func notFound(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	return srv.URL
}
