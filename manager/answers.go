package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// answerData is the data of an answer, as docs/protocol.md describes it in section
// 3. A member of another type counts as missing.
type answerData struct {
	status     stage.Status
	message    string
	exitCode   int
	outputVars map[string]string
	outputs    []api.Output
	artifact   []byte
	tests      *api.TestSummary
	clone      *api.CloneTime
	kind       string // see [api.FailureKind]
	oomKilled  bool
	bodyCode   int // the HTTP status in the error of a handler
	// failedByCode reports that the answer names an exit code other than 0, or the signal
	// that ended the step.
	failedByCode bool
}

func parseAnswerData(data json.RawMessage) (f answerData) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return f
	}
	var long, short string
	for name, into := range map[string]any{
		"command_execution_status": &f.status,
		"error_message":            &long,
		"error_msg":                &short,
		"exit_code":                &f.exitCode,
		"output_vars":              &f.outputVars,
		"outputs":                  &f.outputs,
		"artifact":                 &f.artifact,
		"tests":                    &f.tests,
		"clone":                    &f.clone,
		"failure_kind":             &f.kind,
		"oom_killed":               &f.oomKilled,
		"code":                     &f.bodyCode,
	} {
		if raw, ok := members[name]; ok {
			_ = json.Unmarshal(raw, into) // a foreign handler may use the name for something else
		}
	}
	f.message = cmp.Or(long, short)
	if f.exitCode == 0 {
		f.exitCode = exitCodeIn(f.message)
	}
	f.failedByCode = f.exitCode != 0
	f.exitCode = max(f.exitCode, 0) // foreign delegates answer -1 for a step that a signal ended
	if f.status == "" && short != "" {
		f.status = stage.Failure
	}
	return f
}

// exitStatus matches the end of a foreign delegate's message about a failed step, such
// as "1 error occurred:\n\t* exit status 3\n\n".
var exitStatus = regexp.MustCompile(`(?:^|\s)exit (?:status|code) ([0-9]{1,10})\s*$`)

// exitCodeIn returns the exit code at the end of a message, or 0. Foreign delegates
// report the code only there.
func exitCodeIn(message string) int {
	const most = 1 << 10 // bytes from the end that are searched
	m := exitStatus.FindStringSubmatch(message[max(0, len(message)-most):])
	if m == nil {
		return 0
	}
	code, err := strconv.ParseUint(m[1], 10, 31)
	if err != nil {
		return 0
	}
	return int(code)
}

// declareSecrets marks the outputs that the step's payload declares as secret. Some
// delegates answer without the types.
func (f *answerData) declareSecrets(payload json.RawMessage) {
	var declared struct {
		Outputs []api.Output `json:"outputs"`
	}
	_ = json.Unmarshal(payload, &declared) // the delegate has checked the payload
	secret := map[string]bool{}
	for _, d := range declared.Outputs {
		if d.Type == stage.OutputSecret {
			secret[d.Key] = true
		}
	}
	found := map[string]bool{}
	for i, o := range f.outputs {
		if secret[o.Key] {
			f.outputs[i].Type, found[o.Key] = stage.OutputSecret, true
		}
	}
	for _, d := range declared.Outputs {
		if v, ok := f.outputVars[d.Key]; ok && secret[d.Key] && !found[d.Key] {
			f.outputs, found[d.Key] = append(f.outputs, api.Output{Key: d.Key, Value: v, Type: stage.OutputSecret}), true
		}
	}
}

// hideSecrets replaces the values of secret outputs, and all values that contain one of
// them. A foreign delegate has them in the output variables as well. It runs once for
// each answer, because its cost is the number of secrets times the size of the values.
func (f *answerData) hideSecrets() {
	for _, o := range slices.Clone(f.outputs) {
		if o.Type != stage.OutputSecret {
			continue
		}
		for k, v := range f.outputVars {
			if k == o.Key || shows(v, o) {
				f.outputVars[k] = hidden
			}
		}
		for i, other := range f.outputs {
			if other.Key == o.Key && other.Type == o.Type || shows(other.Value, o) {
				f.outputs[i].Value = hidden
			}
		}
	}
}

// minSecret is the minimum length of a secret output that is hidden within other text, in
// bytes. Shorter values occur by accident.
const minSecret = 3

// shows reports whether a text contains the value of a secret output.
func shows(text string, o api.Output) bool {
	return len(o.Value) >= minSecret && strings.Contains(text, o.Value)
}

// hideSecrets replaces the values of secret outputs in a message.
func hideSecrets(message string, outputs []api.Output) string {
	for _, o := range outputs {
		if o.Type == stage.OutputSecret && shows(message, o) {
			message = strings.ReplaceAll(message, o.Value, hidden)
		}
	}
	return message
}

// cut returns at most the first bytes of a text, without a partial character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "..."
}

// parseAnswer returns the meaning of an answer. A client may send the code OK for
// every end and report the result in the data.
func parseAnswer(taskType string, from *answerCommand) queue.Answer {
	a := interpretAnswer(taskType, from)
	a.Error, a.Code = cut(a.Error, maxMessage), task.Code(cut(string(a.Code), maxCode))
	return a
}

func interpretAnswer(taskType string, from *answerCommand) queue.Answer {
	code, reason, data := from.Code, from.Reason, from.Data
	f := parseAnswerData(data)
	a := queue.Answer{Code: code, Data: data, Error: hideSecrets(cut(cmp.Or(reason, f.message), maxConcealed), f.outputs)}
	switch code {
	case task.OK:
	case "":
		if reason != "" {
			f.status = stage.Failure
		}
		a.Code = task.Unknown
	case task.RetryOnOtherDelegate:
		a.Retry, a.Outcome = true, queue.Failure
		return a
	case task.Timeout:
		f.status = stage.Timeout
	default:
		a.Error = cmp.Or(a.Error, fmt.Sprintf("the delegate answered %s without a reason", code))
		if f.status != stage.Timeout {
			f.status = stage.Failure
		}
	}
	switch f.status {
	case "":
		if from.NeedsStatus && isPart(taskType) { // a delegate that did the work says so
			a.Outcome, a.Error = queue.Failure, cmp.Or(a.Error, "the delegate's answer has no command_execution_status")
			return a
		}
		a.Outcome, a.Error = queue.Success, ""
	case stage.Success, stage.Skipped:
		a.Outcome, a.Error = queue.Success, ""
	case stage.Running:
		if taskkind.Of(taskType) == taskkind.Execute {
			a.Running = true
			return a
		}
		a.Outcome, a.Error = queue.Failure, cmp.Or(a.Error, "the delegate answered RUNNING, which only a step may")
	case stage.Timeout:
		a.Outcome, a.Error = queue.TimedOut, cmp.Or(a.Error, "the delegate answered TIMEOUT")
	default:
		a.Outcome, a.Error = queue.Failure, cmp.Or(a.Error, fmt.Sprintf("the delegate answered %s", f.status))
	}
	return a
}
