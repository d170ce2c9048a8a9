package task_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every member of docs/protocol.md 1 and 2, for decoding and encoding. A renamed
// or missing field fails the tests.
const (
	wireV1 = `{
		"id":"t1","type":"x","data":{"a":[1,2]},"async":true,"runnerResponse":true,"timeout":1500,
		"logging":{"token":"tok","abstractions":{"k":"v"}},
		"delegate":{"id":"d","instance_id":"i","token":"dt"},
		"capabilities":[{"c":1}]
	}`
	wireV2 = `{
		"id":"t2","type":"y","data":null,"account":"acc","driver":"vm","config":{"pool":"p"},
		"forward":{"address":"a:1","insecure":true,"certs":{"public":"pub","private":"priv","ca":"ca"}},
		"logger":{"address":"l","insecure":true,"token":"t","key":"k","account":"a","indirect_upload":true,
			"skip_opening_stream":true,"skip_closing_stream":true,"trim_new_line_suffix":true,
			"increase_log_limit":true,"masks":["m"]},
		"secrets":[{"id":"s","type":"secret/static","data":{"v":1}}]
	}`
)

func decode(t *testing.T, text string) *task.Task {
	t.Helper()
	tk := new(task.Task)
	require.NoError(t, json.Unmarshal([]byte(text), tk))
	return tk
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestWireNamesOfATask(t *testing.T) {
	t.Parallel()
	v1 := &task.Task{
		ID: "t1", Type: "x", Data: json.RawMessage(`{"a":[1,2]}`), Async: true, RunnerResponse: true, Timeout: 1500,
		Logging:      task.Logging{Token: "tok", Abstractions: map[string]string{"k": "v"}},
		Delegate:     task.Delegate{ID: "d", InstanceID: "i", Token: "dt"},
		Capabilities: json.RawMessage(`[{"c":1}]`),
	}
	v2 := &task.Task{
		ID: "t2", Type: "y", Data: json.RawMessage(`null`), Account: "acc", Driver: "vm", Config: json.RawMessage(`{"pool":"p"}`),
		Forward: &task.Forward{Address: "a:1", Insecure: true, Certs: &task.Certs{Public: "pub", Private: "priv", CA: "ca"}},
		Logger: &task.Logger{
			Address: "l", Insecure: true, Token: "t", Key: "k", Account: "a", IndirectUpload: true, SkipOpeningStream: true,
			SkipClosingStream: true, TrimNewLineSuffix: true, IncreaseLogLimit: true, Masks: []string{"m"},
		},
		Secrets: []*task.Task{{ID: "s", Type: "secret/static", Data: json.RawMessage(`{"v":1}`)}},
	}
	for wire, want := range map[string]*task.Task{wireV1: v1, wireV2: v2} {
		assert.Equal(t, want, decode(t, wire))
		assert.JSONEq(t, wire, encode(t, want))
	}
}

func TestZeroTaskEncodesTheRequiredMembers(t *testing.T) {
	t.Parallel()
	assert.JSONEq(t, `{"id":"","type":"","data":null}`, encode(t, &task.Task{}))
}

// docs/protocol.md 1: unknown members survive in the task and in its sections.
// Numbers keep all digits.
func TestUnknownMembersSurviveWithAllTheirDigits(t *testing.T) {
	t.Parallel()
	const wire = `{"id":"t","type":"x","data":{"n":12345678901234567890.123456789},"expressions":{"big":9007199254740993},
		"logging":{"token":"a","shape":{"big":9007199254740993}},"delegate":{"region":"eu"},
		"forward":{"address":"f","via":[1],"certs":{"chain":"c"}},"logger":{"key":"k","rate":1e400},
		"secrets":[{"id":"s","type":"y","data":null,"vault":"v"}]}`
	got := encode(t, decode(t, wire))

	assert.JSONEq(t, strings.ReplaceAll(wire, "1e400", "1"), strings.ReplaceAll(got, "1e400", "1")) // too large for a float
	for _, digits := range []string{"12345678901234567890.123456789", "9007199254740993", "1e400"} {
		assert.Contains(t, got, digits)
	}
	assert.Equal(t, 2, strings.Count(got, "9007199254740993"))
}

func TestUnknownMembersSurviveChangesOfFields(t *testing.T) {
	t.Parallel()
	tk := decode(t, `{"id":"t","type":"x","data":1,"timeout":5,"new":true,"logging":{"token":"a","new":1},"forward":{"address":"f","new":2}}`)
	tk.ID, tk.Data, tk.Timeout, tk.Logging.Token, tk.Forward = "u", json.RawMessage(`2`), 0, "b", nil
	tk.Driver = "vm"

	assert.JSONEq(t, `{"id":"u","type":"x","data":2,"driver":"vm","new":true,"logging":{"token":"b","new":1}}`, encode(t, tk))

	tk.Logging = task.Logging{} // removes its unknown members as well
	assert.JSONEq(t, `{"id":"u","type":"x","data":2,"driver":"vm","new":true}`, encode(t, tk))

	c := *tk
	c.ID = "copy"
	assert.JSONEq(t, `{"id":"copy","type":"x","data":2,"driver":"vm","new":true}`, encode(t, &c), "a copy keeps the unknown members")
}

// encoding/json decodes "ID" into the field "id". The member must not survive as
// unknown, where it would override a later change.
func TestMemberInAnotherCaseIsKnown(t *testing.T) {
	t.Parallel()
	tk := decode(t, `{"ID":"a","Type":"x","DATA":1,"RunnerResponse":true,"logging":{"TOKEN":"t"}}`)
	require.Equal(t, "a", tk.ID)
	tk.ID, tk.RunnerResponse = "b", false

	assert.JSONEq(t, `{"id":"b","type":"x","data":1,"logging":{"token":"t"}}`, encode(t, tk))
}

func TestDecodingATaskAgainReplacesTheFirst(t *testing.T) {
	t.Parallel()
	tk := decode(t, `{"id":"a","type":"x","data":1,"new":1,"timeout":5}`)
	require.NoError(t, json.Unmarshal([]byte(`{"id":"b","type":"y"}`), tk))
	assert.JSONEq(t, `{"id":"b","type":"y","data":null}`, encode(t, tk))
}

func TestDecodingRefusesInvalidTasks(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`[]`, `"x"`, `{"id":1}`, `{"timeout":"5s"}`, `{"timeout":1.5}`, `{`, ``} {
		tk := task.Task{ID: "kept"}
		assert.Error(t, json.Unmarshal([]byte(bad), &tk), bad)
		assert.Equal(t, "kept", tk.ID, "a failed decode changes nothing")
	}
}

func TestEncodingRefusesDataThatIsNotJSON(t *testing.T) {
	t.Parallel()
	_, err := json.Marshal(&task.Task{ID: "t", Type: "x", Data: json.RawMessage(`{`)})
	assert.Error(t, err)
}

func TestMillisBecomeADuration(t *testing.T) {
	t.Parallel()
	for m, want := range map[task.Millis]time.Duration{
		0: 0, 1: time.Millisecond, 90_000: 90 * time.Second, -5: -5 * time.Millisecond,
		math.MaxInt64 / 1_000_000:   math.MaxInt64 / 1_000_000 * 1_000_000,
		math.MaxInt64/1_000_000 + 1: math.MaxInt64,
		math.MaxInt64:               math.MaxInt64,
		math.MinInt64:               math.MinInt64,
		math.MinInt64/1_000_000 - 1: math.MinInt64,
	} {
		assert.Equal(t, want, m.Duration(), "%d ms", m)
	}
}

// Decoding never panics. Encoding and decoding a decoded task again changes nothing.
func FuzzTaskRoundTrip(f *testing.F) {
	for _, seed := range []string{
		wireV1, wireV2, `{}`, `null`, `{"id":"a","ID":"b","iD":1}`, `{"logging":null,"delegate":{"x":1},"forward":{"certs":null,"X":[]}}`,
		`{"secrets":[null,{"secrets":[{"a":1}]}]}`, `{"":{},"\u0000":1,"ſecrets":[]}`, `{"data":"<&>\u2028"}`, `{"capabilities":null,"config":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var first task.Task
		if json.Unmarshal(b, &first) != nil {
			return
		}
		once, err := json.Marshal(&first)
		require.NoError(t, err)
		var second task.Task
		require.NoError(t, json.Unmarshal(once, &second), "%s", once)
		twice, err := json.Marshal(&second)
		require.NoError(t, err)
		assert.Equal(t, string(once), string(twice))
	})
}

func BenchmarkTaskRoundTrip(b *testing.B) {
	wire := []byte(strings.Replace(wireV1, `"id"`, `"unknown":{"a":1},"id"`, 1))
	b.ReportAllocs()
	for b.Loop() {
		var tk task.Task
		if err := json.Unmarshal(wire, &tk); err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(&tk); err != nil {
			b.Fatal(err)
		}
	}
}
