//go:build unix

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

const (
	goodReport = `<testsuite name="good" time="1.5"><testcase name="a" time="1.5"/></testsuite>`
	badReport  = `<testsuite name="bad"><testcase classname="c" name="b"><failure message="m"/></testcase><testcase name="s"><skipped/></testcase></testsuite>`
)

// reporting returns a step that writes reports.
func reporting(script string, paths ...string) stage.Step {
	step := sh("step", "good='"+goodReport+"'; bad='"+badReport+"'\n"+script)
	step.TestReport = &stage.TestReport{Kind: "Junit"}
	step.TestReport.Junit.Paths = paths
	return step
}

// Rule D5: patterns relative to the working directory find the reports. Failed tests do not fail the
// step.
func TestTestReportsAreSummarized(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	step := reporting(`mkdir -p out/x/y 'we[i]rd'; echo "$good" > out/good.xml; echo "$bad" > out/x/y/bad.xml; echo "$good" > out/x/other.txt
		echo "$good" > 'we[i]rd/in.xml'`,
		"out/*.xml", "./out/**/bad.xml", "out/**")
	res, out := r.run(step)
	require.Zero(t, res.ExitCode)
	require.Equal(t, &stage.TestSummary{
		Total: 4, Passed: 2, Failed: 1, Skipped: 1, DurationMillis: 3000,
		Failures: []stage.TestFailure{{Suite: "bad", Class: "c", Name: "b", Message: "m"}},
	}, res.Tests)
	require.Equal(t, "Tests: 4 (2 passed, 1 failed, 0 errors, 1 skipped) in 3s, from 3 reports\n", out)

	for name, c := range map[string]struct {
		dir, pattern string
		total        int
	}{
		"one level":              {"", "out/*/*.xml", 0},
		"two levels":             {"", "*/*/*/*.xml", 2},
		"any level":              {"", "**/*.xml", 4},
		"none between":           {"", "out/**/good.xml", 1},
		"twice any":              {"", "**/**/x/**/bad.xml", 2},
		"class":                  {"", "out/[f-h]ood.xml", 1},
		"working directory":      {"out/x", "y/*.xml", 2},
		"above it":               {"out/x", "../*.xml", 1},
		"mount":                  {"out", "/workspace/out/*.xml", 1},
		"real path":              {"", r.workspace() + "/out/*.xml", 1},
		"directory of signs":     {"we[i]rd", "*.xml", 1},
		"folder is not a report": {"", "out", 0},
		"nothing":                {"", "none/*.xml", 0},
		"outside":                {"", "../*/steps/**", 0},
		"outside from below":     {"out", "../../**", 0},
		"outside and absolute":   {"", "/etc/**", 0},
		"no pattern":             {"", "out/[", 0},
	} {
		t.Run(name, func(t *testing.T) {
			step := reporting("true", c.pattern)
			step.WorkingDir = c.dir
			res, _ := r.run(step)
			require.Equal(t, c.total, res.Tests.Total)
			if c.total == 0 {
				require.Len(t, res.Tests.Problems, 1)
				require.Equal(t, strings.HasPrefix(name, "outside"), strings.Contains(res.Tests.Problems[0], "is not in the workspace"))
			} else {
				require.Empty(t, res.Tests.Problems)
			}
		})
	}
}

func TestReportsOfAFailedStepAreReadToo(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	res, _ := r.run(reporting(`echo "$bad" > r.xml; exit 3`, "r.xml"))
	require.Equal(t, 3, res.ExitCode)
	require.Equal(t, 1, res.Tests.Failed)

	res, out := r.run(sh("plain", "true"))
	require.Nil(t, res.Tests)
	require.Empty(t, out)
}

// A report that cannot be read is a problem with a reason. It neither fails nor blocks the step, and
// its content is not printed.
func TestReportsThatCannotBeReadAreProblems(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.MkdirAll(outside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "r.xml"), []byte(goodReport), 0o600))
	for name, c := range map[string]struct{ script, pattern, want string }{
		"malformed":     {`echo '<testsuite>hunter2' > r.xml`, "*.xml", "r.xml: line 2: it is not well-formed XML"},
		"link":          {`ln -s ` + outside + `/r.xml r.xml`, "*.xml", "r.xml: it is not a regular file"},
		"linked folder": {`ln -s ` + outside + ` d`, "d/*.xml", "no file matches"},
		"any linked":    {`ln -s ` + outside + ` d; ln -s .. up; mkdir e; ln -s .. e/up`, "**/*.xml", "no file matches"},
		"pipe":          {`mkfifo r.xml`, "r.xml", "r.xml: it is not a regular file"},
		"too large":     {`head -c 16777217 /dev/zero > r.xml`, "r.xml", "r.xml: it is larger than 16777216 bytes"},
		"too many":      {`i=0; while [ $i -lt 1001 ]; do : > $i.xml; i=$((i+1)); done`, "*.xml", "1001 files match; the first 1000 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).init()
			res, out := r.run(reporting(c.script, c.pattern))
			require.Zero(t, res.ExitCode)
			require.Zero(t, res.Tests.Total)
			require.Contains(t, res.Tests.Problems[0], c.want)
			require.LessOrEqual(t, len(res.Tests.Problems), 20)
			require.NotContains(t, strings.Join(res.Tests.Problems, "")+out, "hunter2")
			require.Equal(t, 1, strings.Count(out, "\n"), out)
		})
	}
	t.Run("unknown kind", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).init()
		step := reporting("true", "*.xml")
		step.TestReport.Kind = "tap"
		res, _ := r.run(step)
		require.Equal(t, []string{`reports of kind "tap" are not known`}, res.Tests.Problems)
	})
	t.Run("one bad among good", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).init()
		res, _ := r.run(reporting(`echo "$good" > a.xml; echo nonsense > b.xml; echo "$bad" > c.xml`, "*.xml"))
		require.Equal(t, 3, res.Tests.Total)
		require.Len(t, res.Tests.Problems, 1)
	})
}

// The reports of a step with a working directory outside the workspace are read there, and not outside
// of that directory.
func TestReportsOutsideTheWorkspace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.xml"), []byte(goodReport), 0o600))
	r := newRig(t).init()
	step := reporting(`echo "$bad" > r.xml; ln -s ../r.xml up.xml`, "r.xml", filepath.Join(dir, "in", "*.xml"), "../r.xml")
	step.WorkingDir = filepath.Join(dir, "in")
	res, _ := r.run(step)
	require.Equal(t, 2, res.Tests.Total)
	require.Len(t, res.Tests.Problems, 2, res.Tests.Problems)
}

// Rules D2 and D5: containers see the clone, and their reports are read as on the host.
func TestContainersHaveTheCloneAndTheirReportsAreRead(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, nil)
	s.addProject(t, "project")
	r, engine := dockerRig(t)
	r.cloned(stage.Clone{URL: s.URL + "/project/.git", Dir: "src"})
	step := in(engine.Image, reporting(`cat file; mkdir out; echo "$good" > out/r.xml; echo "$bad" > ../r.xml; ln -s /etc/passwd link.xml`,
		"out/*.xml", "/workspace/r.xml", "link.xml", "/etc/*"))
	step.WorkingDir = "src"
	res, out := r.run(step)
	require.True(t, strings.HasPrefix(out, "three"), out)
	require.Equal(t, 3, res.Tests.Total)
	require.Equal(t, []string{`"/etc/*" is not in the workspace`, "src/link.xml: it is not a regular file"}, res.Tests.Problems)

	step.WorkingDir = "/tmp"
	step.Run.Command = []string{"true"}
	res, _ = r.run(step)
	require.Contains(t, res.Tests.Problems[0], "not in the workspace")
}

// The line about the reports is complete, with correct plurals.
func TestTheLineAboutTestReports(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	untimed := `echo '<testsuite><testcase name="a"/></testsuite>' > `
	for want, step := range map[string]stage.Step{
		"Tests: 1 (1 passed, 0 failed, 0 errors, 0 skipped), from 1 report\n":  reporting(untimed+"a.xml", "a.xml"),
		"Tests: 2 (2 passed, 0 failed, 0 errors, 0 skipped), from 2 reports\n": reporting(untimed+"b1.xml;"+untimed+"b2.xml", "b*.xml"),
		"Tests: 1 (1 passed, 0 failed, 0 errors, 0 skipped) in 1.5s, from 1 report\n": reporting(
			`echo '<testsuite><testcase name="a" time="1.5"/></testsuite>' > c.xml`, "c.xml"),
		"Tests: 0 (0 passed, 0 failed, 0 errors, 0 skipped), from 0 reports; a problem: no file matches \"d.xml\"\n": reporting("true", "d.xml"),
	} {
		_, out := r.run(step)
		require.Equal(t, want, out)
	}
}

// An error names its step once.
func TestAnErrorNamesItsStepOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	late := sh("late", "sleep 600")
	late.Timeout = 1
	refused := sh("refused", "true")
	refused.WorkingDir = "../x"
	for _, step := range []stage.Step{late, refused} {
		_, err := r.fail(step)
		require.Equal(t, 1, strings.Count(err.Error(), "step \""), err)
		require.True(t, strings.HasPrefix(err.Error(), "step \""+step.ID+"\": "), err)
	}
}
