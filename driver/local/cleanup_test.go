//go:build unix

package local_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// A record of a process that had not started yet, and a record whose process id now belongs to another
// process.
func TestCleanupKillsNoForeignProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	self := os.Getpid()
	data, err := json.Marshal(map[string]any{"pid": self, "start": "another"})
	require.NoError(t, err)
	left, err := r.d.Cleanup(t.Context(), []driver.Resource{
		{Kind: "process", ID: "0123"}, {Kind: "process", ID: ""}, {Kind: "process", ID: "4567", Data: data},
	})
	require.NoError(t, err) // this process still runs
	require.Empty(t, left)
}

func TestCleanupRefusesForeignResources(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	outside := t.TempDir()
	named := filepath.Join(outside, "dlite-0123456789ab-0123456789abcdef")
	require.NoError(t, os.Mkdir(named, 0o700))
	rs := []driver.Resource{
		{Kind: "directory", ID: outside},
		{Kind: "directory", ID: named},
		{Kind: "directory", ID: r.work},
		{Kind: "directory", ID: r.work + "/../" + filepath.Base(outside)},
		{Kind: "directory", ID: "relative"},
		{Kind: "control-group", ID: "/sys/fs/cgroup"},
		{Kind: "control-group", ID: named},
		{Kind: "mount", ID: "/proc"},
		{Kind: "mount", ID: named + "/volumes/x"},
		{Kind: "mount", ID: filepath.Join(r.work, filepath.Base(named), "volumes", "..", "x")},
		{Kind: "host-directory", ID: "/"},
		{Kind: "host-directory", ID: filepath.Dir(r.work)},
		{Kind: "host-directory", ID: "relative"},
		{Kind: "container", ID: "foreign"},
		{Kind: "container", ID: ""},
		{Kind: "network", ID: "bridge"},
		{Kind: "pod", ID: "x"},
	}
	left, err := r.d.Cleanup(t.Context(), rs)
	require.ElementsMatch(t, rs, left)
	for _, res := range rs {
		require.ErrorContains(t, err, "remove "+res.Kind+" "+res.ID+": ")
	}
	require.DirExists(t, named)
}

func TestCleanupRemovesOddFilesAndFollowsNoLink(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o600))
	r.run(sh("step", `mkdir -p a/b/c; touch a/b/c/f; ln -s `+outside+` link; ln -s `+outside+` a/b/link; chmod 000 a/b/c; chmod 500 a/b a; mkfifo p`))
	r.cleanup()
	requireEmpty(t, r.work)
	require.FileExists(t, filepath.Join(outside, "keep"))
}

func TestHostVolumes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	existing := filepath.Join(base, "existing")
	require.NoError(t, os.Mkdir(existing, 0o700))
	removed := filepath.Join(base, "removed")
	require.NoError(t, os.Mkdir(removed, 0o700))
	require.NoError(t, os.Symlink(existing, filepath.Join(base, "link")))
	made, kept := filepath.Join(base, "p", "q", "made"), filepath.Join(base, "kept")

	r := newRig(t)
	host := func(id, path string, create, remove bool) *stage.Volume {
		return &stage.Volume{Host: &stage.HostVolume{ID: id, Name: id, Path: path, Create: create, Remove: remove}}
	}
	r.env.Volumes = []*stage.Volume{
		host("existing", existing, false, false), host("removed", removed, false, true),
		host("made", made, true, true), host("kept", kept, true, false),
		{Temp: &stage.TempVolume{ID: "temp-1", Name: "my temp"}}, {Temp: &stage.TempVolume{ID: "m", Medium: "memory"}},
	}
	r.init()
	step := sh("step", `for d in "$DLITE_VOLUME_EXISTING" "$DLITE_VOLUME_REMOVED" "$DLITE_VOLUME_MADE" "$DLITE_VOLUME_KEPT" "$DLITE_VOLUME_MY_TEMP" "$DLITE_VOLUME_M" "$DLITE_VOLUME_LATE"; do
		touch $d/file || exit 1; done; echo $DLITE_VOLUME_M`)
	for _, name := range []string{"existing", "removed", "made", "kept", "my temp", "m", "late"} {
		step.Volumes = append(step.Volumes, &stage.VolumeMount{Name: name, Path: "/" + name})
	}
	out := newBuffer()
	late := host("late", filepath.Join(base, "late"), true, true)
	res, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step, ExtraVolumes: []*stage.Volume{late}}, out, r.ledger)
	res.End()
	require.NoError(t, err)
	require.Zero(t, res.ExitCode, out.String())
	require.True(t, strings.HasPrefix(out.String(), r.memory), out.String())
	r.cleanup()
	require.FileExists(t, filepath.Join(existing, "file"))
	require.FileExists(t, filepath.Join(kept, "file"))
	require.NoDirExists(t, removed)
	require.NoDirExists(t, filepath.Join(base, "p"))
	require.NoDirExists(t, filepath.Join(base, "late"))

	for path, want := range map[string]string{
		"relative": "not absolute", filepath.Join(base, "missing"): "does not exist", "/": "root of the file system",
		filepath.Dir(r.work): "cannot be removed", filepath.Join(base, "link"): "is a link",
	} {
		bad := newRig(t)
		bad.env.Volumes = []*stage.Volume{host("bad", path, false, true)}
		require.ErrorContains(t, bad.d.Init(t.Context(), bad.env, bad.ledger), want)
	}
}

// A parent directory with other content stays.
func TestHostVolumeParentsStayWhenTheyAreUsed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r := newRig(t)
	r.env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "v", Path: filepath.Join(base, "p", "v"), Create: true, Remove: true}}}
	r.init()
	require.NoError(t, os.WriteFile(filepath.Join(base, "p", "other"), nil, 0o600))
	r.cleanup()
	require.FileExists(t, filepath.Join(base, "p", "other"))
	require.NoDirExists(t, filepath.Join(base, "p", "v"))
}

// Rule D2: a stage without container steps needs no engine.
func TestHostStepsNeedNoEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, withDockerHost("unix:///no/such/engine.sock")).init()
	res, _ := r.run(sh("step", "true"))
	require.Zero(t, res.ExitCode)
	_, err := r.fail(in("busybox:1", sh("container", "true")))
	require.ErrorContains(t, err, "no Docker engine answers at unix:///no/such/engine.sock")
	// No record names a network, so the cleanup needs no engine.
	require.Empty(t, r.ledger.ofKind("network"))
	require.Empty(t, r.ledger.ofKind("container"))
}

// If the engine does not answer, Cleanup returns the resources.
func TestCleanupKeepsContainersOfAnEngineThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, withDockerHost("unix:///no/such/engine.sock"), withEngineWait(-1))
	rs := []driver.Resource{
		{Kind: "container", ID: "dlite-0123456789ab-0123456789abcdef-step"},
		{Kind: "network", ID: "dlite-0123456789ab-0123456789abcdef"},
	}
	left, err := r.d.Cleanup(t.Context(), rs)
	require.ElementsMatch(t, rs, left)
	require.ErrorContains(t, err, "no Docker engine answers")
}

func TestNewRefusesAnInvalidConfig(t *testing.T) {
	t.Parallel()
	for _, opt := range []option{
		withGrace(-1), withFileLimit(-1), withMemoryDir("/no/such/folder"), withWorkDir("/dev/null/x"),
	} {
		_, err := newDriver(opt)
		require.Error(t, err)
	}
}
