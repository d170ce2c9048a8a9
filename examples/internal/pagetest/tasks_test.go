package pagetest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// matrix has a cell that fails, with a failed test.
const matrix = `
pipeline:
  identifier: web
  name: Web
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        strategy: {matrix: {os: [linux, windows]}}
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: unit
                  name: Unit tests
                  type: Run
                  spec:
                    command: |-
                      echo "tests on <+matrix.os>"
                      echo '<testsuite name="price"><testcase name="two digits"><failure message="got 4,5"/></testcase></testsuite>' > report.xml
                      [ <+matrix.os> = linux ]
                    reports: {type: JUnit, spec: {paths: [report.xml]}}
`

const greeting = `
pipeline:
  identifier: greeting
  name: Greeting
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: greet, name: Greet, type: Run, spec: {command: echo hello}}
`

// operator is a machine on which the tasks of docs/operating.md are carried out.
type operator struct {
	*machine.Machine

	t      *testing.T
	client *api.Client
	made   int
}

// variables are the values of a task, by the names that docs/operating.md gives them.
type variables map[string]string

// task is a task of docs/operating.md: what must be there before, and texts that each way to do it shows. Empty means that the
// command prints nothing, or that the page cannot do it.
type task struct {
	state           func(*operator) variables
	cli, curl, page string
}

var tasks = map[string]task{
	"find why a stage waits":                         {(*operator).waitingStage, "gpu", "gpu", "gpu"},
	"find what holds up the queue":                   {(*operator).waitingStage, "gpu", "gpu", "gpu"},
	"list what runs now":                             {(*operator).running, "RUNNING", `"RUNNING"`, "Live #"},
	"list the failed runs of a branch":               {(*operator).failed, "FAILED", `"FAILED"`, "Web #"},
	"list the runs of a label":                       {(*operator).failed, "FAILED", `"FAILED"`, "Web #"},
	"start a run and wait for its result":            {(*operator).file, "SUCCEEDED", `"SUCCEEDED"`, ""},
	"start a run once, also if the call is repeated": {(*operator).file, "run/", `"greeting"`, ""},
	"run a stored pipeline":                          {(*operator).stored, "run/", `"greeting"`, ""},
	"check a pipeline before a commit":               {(*operator).file, "", `"problems"`, ""},
	"see what a pipeline would run, and why not":     {(*operator).file, "greet", "", ""},
	"watch a run":                                    {(*operator).quick, "SUCCEEDED", `"SUCCEEDED"`, "succeeded"},
	"find why a run failed":                          {(*operator).failed, "exit code 1", "exit code 1", "exit code 1"},
	"find the failed cell of a matrix":               {(*operator).failed, "build_1/unit", "windows", "exit code 1"},
	"read the log of a failed step":                  {(*operator).failed, "tests on windows", "tests on windows", "tests on windows"},
	"find the tests that failed":                     {(*operator).failed, "failed test two digits", "two digits", "two digits"},
	"follow all logs of a run":                       {(*operator).quick, "hello", "hello", "hello"},
	"see the last ten minutes of a log":              {(*operator).failed, "tests on windows", "tests on windows", "tests on windows"},
	"abort a run":                                    {(*operator).running, "run/", `"id"`, "aborted"},
	"abort one step of a run":                        {(*operator).running, "run/", `"id"`, "aborted"},
	"abort all waiting stages of a pipeline":         {(*operator).waitingStage, "stage/", "ABORTED", "aborted"},
	"run a failed run again from a stage":            {(*operator).failed, "run/", `"RUNNING"`, "Attempt 2"},
	"run a run again as a new one":                   {(*operator).failed, "run/", `"id"`, "Web #"},
	"approve a step":                                 {(*operator).approval, "run/", `"id"`, "waits for input"},
	"decide on a failed step that waits":             {(*operator).decision, "run/", `"id"`, "failure ignored"},
	"see delegates and what they run":                {(*operator).running, "local", `"name":"local"`, "local"},
	"find lost delegates":                            {(*operator).nothing, "", "[]", "alive"},
	"drain a machine before maintenance":             {(*operator).alive, "draining", "", "draining"},
	"end the drain":                                  {(*operator).drained, "", "", "alive"},
	"pause everything with a note":                   {(*operator).nothing, "paused", "", "new disks"},
	"limit a pipeline to two stages":                 {(*operator).nothing, "", "", "pipeline:web"},
	"run a schedule now":                             {(*operator).schedule, "", `"id"`, "Nightly"},
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	settings, err := pipeline.ReadSettings([]byte("types: {HarnessApproval: {image: example/none}}"))
	require.NoError(t, err)
	m, err := machine.Start(context.Background(), machine.Config{Dir: t.TempDir(), Stages: 16, Settings: settings, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(t, m.Close(ctx))
	})
	token, err := m.Token(time.Hour)
	require.NoError(t, err)
	client, err := api.New(api.Config{URL: m.URL, Account: machine.Account, Token: token, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	require.NoError(t, err)
	return &operator{Machine: m, t: t, client: client}
}

func (o *operator) nothing() variables {
	return variables{"NOTE": "new disks", "GROUP": "pipeline:web", "Note": "new disks", "Group": "pipeline:web", "Limit": "2"}
}

func (o *operator) name() string {
	o.made++
	return fmt.Sprintf("made-%d", o.made)
}

// until follows a run until a step other than the first one of a live run has a status.
func (o *operator) until(id, status string) api.Run {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	for change, err := range o.client.RunChanges(ctx, id, 0) {
		require.NoError(o.t, err)
		reached := false
		for i := range change.Nodes {
			n := &change.Nodes[i]
			reached = reached || n.Kind == "step" && n.Identifier != "first" && n.Status == status
		}
		if reached {
			break
		}
	}
	run, err := o.client.Run(ctx, id)
	require.NoError(o.t, err)
	return run
}

// run starts a run, and returns its values when a step or the run has a status.
func (o *operator) run(yaml, status string) variables {
	o.t.Helper()
	v := variables{"ID": o.name(), "BRANCH": "release", "LABEL": "team=web", "Branch": "release", "Label": "team=web", "the stage": "Build"}
	run := start(o.t, o.Machine, api.RunRequest{ID: v["ID"], YAML: yaml, Branch: "release", Labels: map[string]string{"team": "web"}})
	v["the run"] = fmt.Sprintf("%s #%d", run.Name, run.Number)
	if status == "" {
		return v
	}
	run = o.until(run.ID, status)
	for i := range run.Nodes {
		if n := &run.Nodes[i]; n.Kind == "step" && n.Status == status {
			v["NODE"], v["KEY"], v["the step"] = n.Path, n.LogKey, n.Name
		}
	}
	return v
}

func (o *operator) quick() variables { return o.run(greeting, "") }

func (o *operator) running() variables {
	return o.run(live(filepath.Join(o.t.TempDir(), "gate")), "RUNNING")
}

func (o *operator) approval() variables { return o.run(waiting, "APPROVAL_WAITING") }

func (o *operator) decision() variables { return o.run(asking, "INTERVENTION_WAITING") }

func (o *operator) failed() variables {
	v := o.run(matrix, "")
	run := ended(o.t, o.Machine, v["ID"])
	require.Equal(o.t, "FAILED", run.Status)
	full, err := o.client.Run(o.t.Context(), run.ID)
	require.NoError(o.t, err)
	for i := range full.Nodes {
		if n := &full.Nodes[i]; n.Kind == "step" && n.Status == "FAILED" {
			v["KEY"], v["STEP"] = n.LogKey, "build_1/unit"
		}
	}
	v["NODE"] = "pipeline.stages.build"
	return v
}

func (o *operator) waitingStage() variables {
	stage, err := o.client.SubmitStage(o.t.Context(), api.StageRequest{
		ID: o.name(), Pipeline: "batch", Selectors: []string{"gpu"}, Steps: []api.StepRequest{{ID: "a", Data: []byte(`{"run":{"entrypoint":["true"]}}`)}},
	})
	require.NoError(o.t, err)
	return variables{"ID": stage.ID, "PIPELINE": "batch", "the stage": stage.ID, "the box": "Select " + stage.ID}
}

func (o *operator) file() variables {
	file := filepath.Join(o.t.TempDir(), "pipeline.yaml")
	require.NoError(o.t, os.WriteFile(file, []byte(greeting), 0o600))
	return variables{"FILE": file, "ID": o.name(), "BRANCH": "main"}
}

func (o *operator) stored() variables {
	_, err := o.client.SetPipeline(o.t.Context(), api.Pipeline{ID: "greeting", YAML: greeting})
	require.NoError(o.t, err)
	return variables{"PIPELINE": "greeting"}
}

func (o *operator) alive() variables { return o.delegate((*api.Client).Undrain) }

func (o *operator) drained() variables { return o.delegate((*api.Client).Drain) }

// delegate brings the delegate into a state.
func (o *operator) delegate(change func(*api.Client, context.Context, string) error) variables {
	all, err := o.client.Delegates(o.t.Context())
	require.NoError(o.t, err)
	require.Len(o.t, all, 1)
	require.NoError(o.t, change(o.client, o.t.Context(), all[0].ID))
	return variables{"NAME": all[0].Name}
}

func (o *operator) schedule() variables {
	stage := []byte(`{"name":"Nightly","steps":[{"id":"a","data":{"run":{"entrypoint":["true"]}}}]}`)
	s, err := o.client.SetSchedule(o.t.Context(), api.Schedule{ID: "nightly", Cron: "0 4 * * *", Stage: stage})
	require.NoError(o.t, err)
	return variables{"ID": s.ID}
}

// done ends what a task may have left.
func (o *operator) done(v variables) {
	ctx := o.t.Context()
	require.NoError(o.t, o.client.Resume(ctx))
	require.NoError(o.t, o.client.SetLimit(ctx, api.Limit{Group: "pipeline:web"}))
	o.alive()
	_, _ = o.client.AbortRun(ctx, v["ID"], api.Order{}) // the id may be that of a stage, or of nothing
	_, _ = o.client.AbortStages(ctx, v["ID"])
}

// described is a row of the table of docs/operating.md.
type described struct {
	task, page, clicks, cli, words, curl string
}

const (
	operatingDoc = "../../../docs/operating.md"
	manyTasks    = 30
)

func describedTasks(t *testing.T) (functions string, rows []described) {
	t.Helper()
	doc, err := os.ReadFile(operatingDoc)
	require.NoError(t, err)
	text := strings.ReplaceAll(string(doc), `\|`, "\x00")
	_, functions, _ = strings.Cut(text, "```sh\n")
	functions, _, _ = strings.Cut(functions, "```")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 6 || strings.HasPrefix(cells[0], "-") || strings.HasPrefix(cells[0], "task") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		rows = append(rows, described{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	require.GreaterOrEqual(t, len(rows), manyTasks)
	require.Len(t, rows, len(tasks))
	return strings.ReplaceAll(functions, "=demo", "="+machine.Account), rows
}

// given is a word that differs each time.
var given = regexp.MustCompile(`^"?\$[A-Z]`)

func TestTheTasksOfAnOperatorOnTheCommandLine(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			testbed.Unavailable(t, tool, "%v", err)
		}
	}
	functions, rows := describedTasks(t)
	o := newOperator(t)
	token, err := o.Token(time.Hour)
	require.NoError(t, err)
	home := t.TempDir()
	bin := filepath.Join(home, "dlite")
	require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/dlite"), bin))
	run := func(task, command, want string, v variables) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", functions+strings.Trim(command, "`"))
		cmd.Dir = home
		cmd.Env = []string{"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "URL=" + o.URL, "API_TOKEN=" + token,
			"DLITE_URL=" + o.URL, "DLITE_ACCOUNT=" + machine.Account, "DLITE_TOKEN=" + token}
		for name, value := range v {
			if strings.ToUpper(name) == name {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s\n%s", task, command, out)
		require.Contains(t, string(out), want, "%s: %s", task, command)
		o.done(v)
	}
	for _, row := range rows {
		task, known := tasks[row.task]
		require.True(t, known, row.task)
		words := 0
		for word := range strings.FieldsSeq(strings.Trim(row.cli, "`")) {
			if !given.MatchString(word) {
				words++
			}
		}
		assert.Equal(t, strconv.Itoa(words), row.words, "%s: words to type", row.task)
		run(row.task, row.cli, task.cli, task.state(o))
		if !strings.HasPrefix(row.curl, "none") {
			run(row.task, row.curl, task.curl, task.state(o))
		}
	}
}

// control finds what a word of docs/operating.md names: in a dialog if there is one, else in the part of a run if one was
// chosen before, else anywhere.
func control(text string, inPart bool) string {
	return fmt.Sprintf(`(() => {
		const text = %s, box = document.querySelector('dialog'), named = s => s && (s.trim() === text || s.trim().startsWith(text + ' '));
		const all = [...(box || document).querySelectorAll('a, button, input, select')].filter(e => e.checkVisibility() && !e.disabled && e.ariaDisabled !== 'true');
		const fits = all.filter(e => named(e.querySelector('.name')?.innerText) || named(e.innerText) || e.ariaLabel === text || [...e.labels || []].some(l => l.innerText === text));
		return (%t && !box && fits.find(e => e.closest('.panel'))) || fits[0];
	})()`, quote(text), inPart)
}

var clicked = regexp.MustCompile(`\*\*(.+?)\*\*`)

func TestTheTasksOfAnOperatorOnThePage(t *testing.T) {
	_, rows := describedTasks(t)
	o := newOperator(t)
	p := signedIn(t, o.Machine)
	for _, row := range rows {
		task := tasks[row.task]
		words := clicked.FindAllStringSubmatch(row.page, -1)
		if clicks, _, _ := strings.Cut(row.clicks, " "); clicks != "-" {
			extra := strings.Count(row.clicks, "one for each")
			require.Equal(t, clicks, strconv.Itoa(len(words)-extra), "%s: clicks", row.task)
		}
		if len(words) == 0 {
			require.True(t, strings.HasPrefix(row.page, "none"), row.task)
			continue
		}
		v := task.state(o)
		p.visit("#/triggers")
		p.shows("h1", "Triggers")
		chosen := ""
		inPart := false
		for _, m := range words {
			o.click(p, m[1], v, &chosen, inPart)
			inPart = inPart || m[1] == "the step" || m[1] == "the stage"
		}
		p.until(fmt.Sprintf(`document.querySelector('main').innerText.includes(%s)`, quote(task.page)))
		o.done(v)
	}
}

// click does what a bold word says. A field gets its value as typed text, and a dialog all its values before its button.
func (o *operator) click(p *tab, word string, v variables, list *string, inPart bool) {
	p.t.Helper()
	text := word
	if name, ok := v[word]; ok && strings.HasPrefix(word, "the ") {
		text = name
	}
	if *list != "" { // the last click opened a list, and this one chooses from it
		find := control(*list, false)
		p.run(act(fmt.Sprintf(`(s => { s.value = [...s.options].find(o => o.innerText === %s).value; s.dispatchEvent(new Event('input', { bubbles: true })); })(%s)`, quote(text), find)))
		*list = ""
		if !value[bool](p, `document.querySelector('dialog') !== null`) { // it is a filter
			p.until(`location.hash.includes('=')`)
		}
		return
	}
	find := control(text, inPart)
	p.until(find)
	switch value[string](p, find+`.tagName + ' ' + (`+find+`.type || '')`) {
	case "SELECT select-one":
		*list = text
		return
	case "INPUT text", "INPUT search":
		p.run(act(find+`.focus()`), act(find+`.select()`), chromedp.KeyEvent(v[word]))
		if !value[bool](p, `document.querySelector('dialog') !== null`) { // it is a filter
			p.until(`decodeURIComponent(location.hash).includes(` + quote(v[word]) + `)`)
		}
		return
	}
	if value[bool](p, `document.querySelector('dialog') !== null`) {
		for _, label := range value[[]string](p, `[...document.querySelectorAll('dialog input')].flatMap(i => [...i.labels]).map(l => l.innerText)`) {
			if v[label] != "" {
				p.enter(label, v[label])
			}
		}
	}
	p.run(act(find + `.click()`))
}
