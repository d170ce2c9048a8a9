package manager

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

func TestUnknownMembersAreRefusedWithTheirPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"step":[]}`:                                       `step: unknown member; did you mean "steps"?`,
		`{"steps":[{}, {"command":["make"]}]}`:              `steps[1].command: unknown member; did you mean "data.run.commands"?`,
		`{"steps":[{"data":{"run":{"command":["make"]}}}]}`: `steps[0].data.run.command: unknown member; did you mean "commands"?`,
		`{"steps":[{"data":{"commands":["make"]}}]}`:        `steps[0].data.commands: unknown member; did you mean "run.commands"?`,
		`{"steps":[{"run":{"commands":["make"]}}]}`:         `steps[0].run: unknown member; did you mean "data.run"?`,
		`{"steps":[{"image":"alpine"}]}`:                    `steps[0].image: unknown member; did you mean "data.image"?`,
		`{"steps":[{"data":{"environmen":{}}}]}`:            `steps[0].data.environmen: unknown member; did you mean "environment"?`,
		`{"steps":[{"data":{"env":{}}}]}`:                   `steps[0].data.env: unknown member; did you mean "environment"?`,
		`{"steps":[{"timeoutMs":1}]}`:                       `steps[0].timeoutMs: unknown member; did you mean "timeout_ms"?`,
		`{"clone":{"url":"u"}}`:                             `clone: unknown member; did you mean "init.clone"?`,
		`{"init":{"clone":{"brnach":"b"}}}`:                 `init.clone.brnach: unknown member; did you mean "branch"?`,
		`{"cleanup":{"volume":[]}}`:                         `cleanup.volume: unknown member; did you mean "volumes"?`,
		`{"retry":{"attempts":3}}`:                          `retry.attempts: unknown member; the members here are max_attempts, on, backoff_ms, max_backoff_ms`,
		`{"steps":[{"x y":1}]}`:                             `steps[0]["x y"]: unknown member; the members here are id, name, timeout_ms, run_on, data`,
		`{"\u0073tep":[]}`:                                  `step: unknown member; did you mean "steps"?`,
		`{"` + strings.Repeat("x", 100) + `":1}`:            `["` + strings.Repeat("x", 64) + `..."]: unknown member; the members here are`,
	} {
		err := knownShapes().stage.check([]byte(text), "")
		require.ErrorIs(t, err, ErrInvalid, text)
		assert.Contains(t, err.Error(), "invalid request: "+want, text)
	}
}

// The payloads of tasks and stages may have members for foreign delegates.
func TestMembersForForeignDelegatesPass(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"init":{"ti_config":{},"tty":true,"mtls_config":{},"timeout":5,"steps":[{"of_the_future":1}]}}`,
		`{"steps":[{"data":{"run_test":{},"run_tests_v2":{},"of_the_future":{"run":{"command":1}},"RUN":{"COMMANDS":[]}}}]}`,
		`{"steps":[{"data":{"environment":{"environmen":"x"},"labels":{"label":"x"}}}]}`,
		`{"labels":{"step":"x"},"cleanup":{"x":1}}`,
		`{"init":{"network":"n"}}`, `{"steps":null}`, `null`, `[]`, `7`, ``, `{"step`,
	} {
		assert.NoError(t, knownShapes().stage.check([]byte(text), ""), text)
	}
	known := knownShapes()
	require.NoError(t, known.task.check([]byte(`{"type":"custom","data":{"step":1},"config":{"x":1},"more":true,"secrets":[{"id":"a","kept":1}]}`), ""))
	require.EqualError(t, known.task.check([]byte(`{"type":"custom","selector":["a"]}`), ""),
		`invalid request: selector: unknown member; did you mean "selectors"?`)
	require.EqualError(t, known.schedule.check([]byte(`{"cron":"@daily","stage":{"step":[]}}`), ""),
		`invalid request: stage.step: unknown member; did you mean "steps"?`)
	require.EqualError(t, known.limit.check([]byte(`{"group":"account","maximum":1}`), ""),
		`invalid request: maximum: unknown member; the members here are group, max, used`)
}

// The stages of the documentation are accepted.
func TestTheDocumentedStagesPass(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/stages/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.NoError(t, knownShapes().stage.check(text, ""), f)
	}
}

// The comparison with known names is bounded, so that a large submission stays cheap.
func TestManyUnknownMembersAreCheap(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"steps":[{"data":{`)
	for i := range maxUnknown {
		b.WriteString(`"q` + strconv.Itoa(i) + `":1,`)
	}
	b.WriteString(`"imagee":"alpine"}}]}`)
	require.NoError(t, knownShapes().stage.check([]byte(b.String()), ""))
}

func TestTheErrorNamesTheValueOfAWrongType(t *testing.T) {
	t.Parallel()
	err := json.Unmarshal([]byte(`{"steps":[{"timeout_ms":{}}]}`), new(api.StageRequest))
	require.Error(t, err)
	assert.Equal(t, "steps.timeout_ms: a value of type object is not allowed here", decodeProblem(err))
	err = json.Unmarshal([]byte(`{`), new(api.StageRequest))
	assert.Equal(t, "unexpected end of JSON input", decodeProblem(err))
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"steps", "step", 1}, {"brnach", "branch", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"é", "e", 1}} {
		assert.Equal(t, c.want, editDistance([]rune(c.a), []rune(c.b)), "%s %s", c.a, c.b)
		assert.Equal(t, c.want, editDistance([]rune(c.b), []rune(c.a)), "%s %s", c.b, c.a)
	}
}

var pathStep = regexp.MustCompile(`^(?:\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\])`)

// hasPath reports whether a path like steps[0].data leads to a member of a text.
func hasPath(text []byte, path string) bool {
	var at any
	if json.Unmarshal(text, &at) != nil {
		return false
	}
	for path != "" {
		m := pathStep.FindStringSubmatch(path)
		if m == nil {
			return false
		}
		path = path[len(m[0]):]
		name := m[1]
		if m[3] != "" {
			name, _ = strconv.Unquote(m[3])
		}
		switch v := at.(type) {
		case []any:
			i, err := strconv.Atoi(m[2])
			if err != nil || i >= len(v) {
				return false
			}
			at = v[i]
		case map[string]any:
			next, ok := v[name]
			if !ok {
				return false
			}
			at = next
		default:
			return false
		}
	}
	return true
}

// A path in an error leads to a member of the text. An accepted text has only members
// that the strict decoder of encoding/json knows, outside of the open payloads.
func FuzzUnknownMembers(f *testing.F) {
	for _, text := range []string{
		`{"step":[]}`, `{"steps":[{"command":["make"]}]}`, `{"steps":[{"data":{"run":{"command":["make"]}}}]}`,
		`{"steps":[{"data":{"x":{},"env":1}}],"init":{"clone":{"urll":1}},"cleanup":{},"retry":{"on":[],"x":1}}`,
		`{"Steps":[{"ID":"a","DATA":{}}]}`, `{"a\u0000\"b":1}`, `{"retry":{"":0}}`, `{"steps":[null,7,[{"q":1}]]}`, `{"\ud800":1}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 || !json.Valid(text) {
			return
		}
		err := knownShapes().stage.check(text, "")
		if err != nil {
			path, _, ok := strings.Cut(strings.TrimPrefix(err.Error(), "invalid request: "), ": unknown member; ")
			require.True(t, ok && errors.Is(err, ErrInvalid), err)
			if !strings.Contains(path, "...") && !hasDuplicates(text) {
				require.True(t, hasPath(text, path), "%q has no %s", text, path)
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.DisallowUnknownFields()
		if strict := d.Decode(new(api.StageRequest)); strict != nil {
			require.NotContains(t, strict.Error(), "unknown field", "%q", text)
		}
	})
}

// hasDuplicates reports whether a name may occur twice in an object: a decoder
// keeps only one of the values.
func hasDuplicates(text []byte) bool {
	d := json.NewDecoder(strings.NewReader(string(text)))
	var names []string
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		name, ok := tok.(string)
		if ok && slices.Contains(names, name) {
			return true
		}
		names = append(names, name)
	}
}
