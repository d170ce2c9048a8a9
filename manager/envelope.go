package manager

import (
	"encoding/json"
	"slices"

	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Foreign VM delegates get the payloads in an envelope, and pass them to an agent that
// was written by others (docs/protocol.md, section 3). The manager completes the
// payloads with the members that such a delegate or its agent needs.

// enveloped wraps the payload of a task of the run in the envelope that its type
// requires. left is the time that the task has.
func (n *run) enveloped(t *task.Task, left task.Millis) json.RawMessage {
	if !taskkind.Enveloped(t.Type) {
		return t.Data
	}
	o, err := parseObject("the payload", t.Data)
	if err != nil {
		return t.Data // the submission check ensures an object
	}
	id := o.text("group_id") // set by prepare
	var e any
	switch taskkind.Of(t.Type) {
	case taskkind.Init:
		o.appendTo("volumes", envelope.WorkspaceVolume())
		e = map[string]any{"setup_vm_request": map[string]any{
			"id": id, "pool_id": n.pool(), "log_key": o.text("log_key"),
			"context": map[string]string{"account_id": n.account}, "setup_request": o,
		}}
	case taskkind.Execute:
		o.completeForeignStep(left)
		e = map[string]any{"execute_step_request": map[string]any{
			"stage_runtime_id": id, "task_id": t.ID, "start_step_request": o,
		}}
	default:
		e = map[string]any{"stage_runtime_id": id, "pool_id": n.pool()}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return t.Data
	}
	return b
}

// pool returns the pool that the init names, or an empty string.
func (n *run) pool() string {
	var init struct{ Network stage.Network }
	_ = json.Unmarshal(n.init.data.json(), &init) // the network may be only an id
	return init.Network.Options[stage.PoolOption]
}

// completeForeignStep sets the members without which a foreign agent fails: it panics
// without an environment, lets a step run past its time without a time-out, and scans
// the disk without a working directory.
func (o object) completeForeignStep(left task.Millis) {
	var env map[string]json.RawMessage
	if json.Unmarshal(o["environment"], &env) == nil && len(env) == 0 {
		// A foreign delegate drops an empty map, which its agent needs.
		o["environment"], _ = json.Marshal(map[string]string{"DLITE_STEP_ID": o.text("id")})
	}
	if seconds := max(1, (left+999)/1000); left > 0 {
		if asked := o.seconds("timeout") / 1000; asked == 0 || asked > seconds {
			o["timeout"], _ = json.Marshal(int64(seconds))
		}
	}
	o["working_dir"], _ = json.Marshal(envelope.InWorkspace(o.text("working_dir")))
	if !o.absent("image") {
		o.appendTo("volumes", envelope.WorkspaceMount())
	}
}

// appendTo appends a value to a list member. It leaves a member of another type
// unchanged: the delegate reports it.
func (o object) appendTo(name string, v any) {
	var list []json.RawMessage
	if !o.absent(name) && json.Unmarshal(o[name], &list) != nil {
		return
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return // structures of strings always encode
	}
	o[name], _ = json.Marshal(append(slices.Clip(list), raw))
}
