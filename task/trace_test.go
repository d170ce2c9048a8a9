package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Rule L3: the trace context travels as two members of the task.
func TestTraceContextTravelsWithTheTask(t *testing.T) {
	t.Parallel()
	var in task.Task
	require.NoError(t, json.Unmarshal([]byte(`{"id":"t","type":"x","traceparent":"`+traceparent+`","tracestate":"a=b,c=d"}`), &in))
	parent, state := in.TraceContext()
	assert.Equal(t, traceparent, parent)
	assert.Equal(t, "a=b,c=d", state)
	trace, span, ok := in.Span()
	assert.True(t, ok)
	assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace)
	assert.Equal(t, "b7ad6b7169203331", span)
	out, err := json.Marshal(&in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"t","type":"x","data":null,"traceparent":"`+traceparent+`","tracestate":"a=b,c=d"}`, string(out))
}

// Rule L3: values of other forms are no trace context, and the task stays valid.
func TestInvalidTraceContextIsIgnored(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"absent":         `""`,
		"a number":       `17`,
		"an object":      `{"a":1}`,
		"null":           `null`,
		"too short":      `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"`,
		"too long":       `"` + traceparent + `0"`,
		"upper case":     `"` + strings.ToUpper(traceparent) + `"`,
		"version ff":     `"ff` + traceparent[2:] + `"`,
		"no trace id":    `"00-00000000000000000000000000000000-b7ad6b7169203331-01"`,
		"no span id":     `"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"`,
		"a newline":      `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\n-01"`,
		"other dashes":   `"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"`,
		"flags not hex":  `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz"`,
		"another dash":   `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01"`,
		"trace id wrong": `"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var in task.Task
			require.NoError(t, json.Unmarshal([]byte(`{"id":"t","traceparent":`+value+`,"tracestate":"a=b"}`), &in))
			parent, state := in.TraceContext()
			assert.Empty(t, parent)
			assert.Empty(t, state)
			assert.Equal(t, "t", in.ID)
		})
	}
}

// Rule L3: a state that does not fit into an environment is omitted. The parent
// stays.
func TestInvalidTracestateIsOmitted(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"a=b\nPATH=/tmp", "a=\x00", "a=é", strings.Repeat("x", 513)} {
		var in task.Task
		in.SetTraceContext(traceparent, state)
		parent, got := in.TraceContext()
		assert.Equal(t, traceparent, parent)
		assert.Empty(t, got)
	}
}
