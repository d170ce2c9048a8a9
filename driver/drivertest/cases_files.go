package drivertest

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

func fileCases() []testCase {
	return []testCase{
		{
			name: "init creates files with their content and mode", rule: "D2",
			run: func(s *stand) {
				tx := s.begin(func(env *driver.Environment) {
					env.Files = []*stage.File{
						{Path: "bin/tool", Mode: 0o755, Data: "#!/bin/sh\necho tool \"$@\"\n"}, {Path: "plain", Mode: 0o666, Data: "ä\n"},
						{Path: "folder", IsDir: true, Mode: 0o700}, nil,
					}
				})
				require.Equal(s, "tool a\nä\n755 bin/tool\n666 plain\n700 folder\n", tx.out("bin/tool a; cat plain; stat -c '%a %n' bin/tool plain folder"))
			},
		},
		{
			name: "the files of a step exist when it starts", rule: "D2",
			run: func(s *stand) {
				step := s.sh("step", "cat conf/a.txt; ./run.sh")
				step.Files = []*stage.File{{Path: "conf/a.txt", Data: "a"}, {Path: "run.sh", Mode: 0o700, Data: "#!/bin/sh\necho b\n"}}
				_, out := s.begin().run(step)
				require.Equal(s, "ab\n", out)
			},
		},
		{
			name: "a file outside the workspace is refused", rule: "D5",
			run: func(s *stand) {
				for _, path := range []string{"../file", "a/../../file", ""} {
					tx := s.prepare()
					tx.env.Files = []*stage.File{{Path: path, Data: "x"}}
					require.Error(s, tx.init(), path)
				}
				step := s.sh("step", "echo RAN")
				step.Files = []*stage.File{{Path: "../file", Data: "x"}}
				out, _ := s.begin().fails(step)
				require.NotContains(s, out, "RAN")
			},
		},
		{
			name: "a file is not written through a link out of the workspace", rule: "D5",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("ln -s /tmp link; ln -s /tmp/drivertest-linked file")
				for _, path := range []string{"link/drivertest-linked", "file"} {
					step := tx.sh("step", "echo RAN")
					step.Files = []*stage.File{{Path: path, Data: "x"}}
					out, _ := tx.fails(step)
					require.NotContains(s, out, "RAN")
				}
			},
		},
		{
			name: "the scratch directory is empty, writable and private to the step", rule: "D5, protocol.md 5",
			run: func(s *stand) {
				tx := s.begin()
				for range 2 {
					require.Equal(s, "0\n", tx.out(`cd "$HARNESS_SCRATCH_DIR" && ls -A | wc -l | tr -d ' ' && echo x > file`))
				}
			},
		},
		{
			name: "the scratch directory may be a path in the workspace", rule: "D5, protocol.md 5",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", `echo x > "$HARNESS_SCRATCH_DIR/file"`)
				step.ScratchDir = "tmp/scratch"
				res, out := tx.run(step)
				require.Zero(s, res.ExitCode, out)
				require.Equal(s, "x\n", tx.out("cat tmp/scratch/file"))
			},
		},
		{
			name: "test reports are summarised", rule: "D5", joint: true,
			run: func(s *stand) {
				step := s.sh("step", `mkdir out; echo '<testsuite name="s" tests="3"><testcase name="a"/><testcase name="b"><failure message="no"/></testcase><testcase name="c"><skipped/></testcase></testsuite>' > out/report.xml; exit 1`)
				step.TestReport = &stage.TestReport{Kind: "Junit"}
				step.TestReport.Junit.Paths = []string{"out/*.xml"}
				res, _ := s.begin().run(step)
				require.Equal(s, 1, res.ExitCode)
				require.NotNil(s, res.Tests)
				require.Equal(s, []int{3, 1, 1, 1}, []int{res.Tests.Total, res.Tests.Passed, res.Tests.Failed, res.Tests.Skipped})
				require.Len(s, res.Tests.Failures, 1)
				require.Equal(s, "b", res.Tests.Failures[0].Name)
			},
		},
		{
			name: "a step without test reports has no summary", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", "true"))
				require.Nil(s, res.Tests)
			},
		},
	}
}

func volumeCases() []testCase {
	return []testCase{
		{
			name: "a temporary volume is shared by the steps that mount it", rule: "D2",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("data", "")))
				s.shares(tx, "data")
			},
		},
		{
			name: "a temporary volume may be in memory", rule: "D2",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("ram", "memory")))
				s.shares(tx, "ram")
			},
		},
		{
			name: "volumes are distinguished by name", rule: "D2",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("a", ""), temp("b", "")))
				step := tx.sh("step", `echo x > "`+tx.at("a", "/vol/a")+`/file"; ls -A "`+tx.at("b", "/vol/b")+`"`)
				step.Volumes = []*stage.VolumeMount{{Name: "a", Path: "/vol/a"}, {Name: "b", Path: "/vol/b"}}
				res, out := tx.run(step)
				require.Zero(s, res.ExitCode, out)
				require.Empty(s, out)
			},
		},
		{
			name: "two transactions may have different volumes of one name", rule: "T8",
			run: func(s *stand) {
				a, b := s.begin(withVolumes(temp("data", ""))), s.begin(withVolumes(temp("data", "")))
				one := s.sh("step", `echo x > "`+s.at("data", "/data")+`/file"`)
				one.Volumes = []*stage.VolumeMount{{Name: "data", Path: "/data"}}
				a.run(one)
				two := s.sh("step", `ls -A "`+s.at("data", "/data")+`"`)
				two.Volumes = one.Volumes
				_, out := b.run(two)
				require.Empty(s, out)
			},
		},
		{
			name: "an undeclared volume is refused by its name", rule: "D3, T8",
			run: func(s *stand) {
				step := s.sh("step", "echo RAN")
				step.Volumes = []*stage.VolumeMount{{Name: "unknown", Path: "/data"}}
				out, err := s.begin().fails(step)
				require.ErrorContains(s, err, "unknown")
				require.NotContains(s, out, "RAN")
			},
		},
		{
			name: "a step may add a volume", rule: "protocol.md 3",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", `echo x > "`+tx.at("late", "/late")+`/file" && echo written`)
				step.Volumes = []*stage.VolumeMount{{Name: "late", Path: "/late"}}
				_, out := tx.run(step, temp("late", ""))
				require.Equal(s, "written\n", out)
			},
		},
		{
			name: "a host volume is the directory that it names, and stays", rule: "D2", needs: Capabilities{HostFolders: true},
			run: func(s *stand) {
				dir := s.TempDir()
				require.NoError(s, os.Chmod(dir, 0o777))
				require.NoError(s, os.WriteFile(filepath.Join(dir, "given"), []byte("given\n"), 0o644))
				tx := s.begin(withVolumes(hostVolumeAt(dir, false, false)))
				require.Equal(s, "given\n", tx.hostVolume(`cat given; echo x > made`))
				tx.cleanup()
				require.FileExists(s, filepath.Join(dir, "given"))
				require.FileExists(s, filepath.Join(dir, "made"))
			},
		},
		{
			name: "a host volume to create and remove does not outlive its transaction", rule: "D2, T2",
			needs: Capabilities{HostFolders: true, FolderRemoval: true},
			run: func(s *stand) {
				dir := s.TempDir()
				tx := s.begin(withVolumes(hostVolumeAt(filepath.Join(dir, "parent", "made"), true, true)))
				tx.hostVolume(`echo x > file`)
				require.FileExists(s, filepath.Join(dir, "parent", "made", "file"))
				tx.cleanup()
				require.NoDirExists(s, filepath.Join(dir, "parent"))
			},
		},
		{
			name: "a host volume to create alone outlives its transaction", rule: "D2", needs: Capabilities{HostFolders: true},
			run: func(s *stand) {
				dir := filepath.Join(s.TempDir(), "made")
				tx := s.begin(withVolumes(hostVolumeAt(dir, true, false)))
				tx.hostVolume(`echo x > file`)
				tx.cleanup()
				require.FileExists(s, filepath.Join(dir, "file"))
			},
		},
		{
			name: "a host volume that is missing fails the init", rule: "D2", needs: Capabilities{HostFolders: true},
			run: func(s *stand) {
				tx := s.prepare()
				dir := filepath.Join(s.TempDir(), "missing")
				tx.env.Volumes = []*stage.Volume{hostVolumeAt(dir, false, s.target.Can.FolderRemoval)}
				require.ErrorContains(s, tx.init(), dir)
				require.NoDirExists(s, dir)
			},
		},
		{
			name: "a read-only volume is read-only", rule: "D3", needs: Capabilities{HostFolders: true, Mounts: true},
			run: func(s *stand) {
				dir := s.TempDir()
				require.NoError(s, os.WriteFile(filepath.Join(dir, "given"), []byte("given\n"), 0o644))
				volume := hostVolumeAt(dir, false, false)
				volume.Host.ReadOnly = true
				tx := s.begin(withVolumes(volume))
				require.Equal(s, "given\nrefused\n", tx.hostVolume(`cat given; touch made 2>/dev/null && echo WRITTEN || echo refused`))
				require.NoFileExists(s, filepath.Join(dir, "made"))
			},
		},
	}
}

// shares checks that a step can read a file that another step wrote to the volume.
func (s *stand) shares(tx *transaction, name string) {
	s.Helper()
	writer := s.sh("writer", `echo content > "`+s.at(name, "/here")+`/file"`)
	writer.Volumes = []*stage.VolumeMount{{Name: name, Path: "/here"}}
	res, out := tx.run(writer)
	require.Zero(s, res.ExitCode, out)
	reader := s.sh("reader", `cat "`+s.at(name, "/there")+`/file"`)
	reader.Volumes = []*stage.VolumeMount{{Name: name, Path: "/there"}}
	_, out = tx.run(reader)
	require.Equal(s, "content\n", out)
}

// hostVolume runs a script in the volume "h".
func (tx *transaction) hostVolume(script string) string {
	tx.Helper()
	step := tx.sh("step", `cd "`+tx.at("h", "/h")+`" || exit 1; `+script)
	step.Volumes = []*stage.VolumeMount{{Name: "h", Path: "/h"}}
	res, out := tx.run(step)
	require.Zero(tx, res.ExitCode, out)
	return out
}

func withVolumes(list ...*stage.Volume) func(*driver.Environment) {
	return func(env *driver.Environment) { env.Volumes = list }
}

func temp(name, medium string) *stage.Volume {
	return &stage.Volume{Temp: &stage.TempVolume{ID: name, Name: name, Medium: medium}}
}

// hostVolumeAt returns the volume "h".
func hostVolumeAt(path string, create, remove bool) *stage.Volume {
	return &stage.Volume{Host: &stage.HostVolume{ID: "h", Name: "h", Path: path, Create: create, Remove: remove}}
}
