package manager

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// infra returns the task types of an infrastructure for init, execute and cleanup,
// the preferred set first. It returns nil for an unknown one.
func infra(name string) [][3]string {
	switch name {
	case "local":
		return [][3]string{
			{task.TypeDockerInit, task.TypeDockerExecute, task.TypeDockerCleanup},
			{task.TypeLocalInit, task.TypeLocalExecute, task.TypeLocalCleanup},
		}
	case "vm":
		return [][3]string{
			{task.TypeVMInit, task.TypeVMExecute, task.TypeVMCleanup},
			{task.TypeDliteVMInit, task.TypeDliteVMExecute, task.TypeDliteVMCleanup},
		}
	case "kubernetes":
		return [][3]string{{task.TypeKubernetesInit, task.TypeKubernetesExecute, task.TypeKubernetesCleanup}}
	}
	return nil
}

// enveloped wraps a task's payload in the envelope that its type requires. The text
// of the payload does not change.
func enveloped(t *task.Task, account string) json.RawMessage {
	if !strings.HasPrefix(t.Type, task.DliteVMPrefix) {
		return t.Data
	}
	o, err := parseObject("the payload", t.Data)
	if err != nil {
		return t.Data // the submission check ensures an object
	}
	var network stage.Network
	_ = json.Unmarshal(o["network"], &network)
	pool, id := network.Options[stage.PoolOption], o.text("group_id") // set by prepare
	var e any
	switch task.KindOf(t.Type) {
	case task.Init:
		e = map[string]any{"setup_vm_request": map[string]any{
			"id": id, "pool_id": pool, "log_key": o.text("log_key"),
			"context": map[string]string{"account_id": account}, "setup_request": t.Data,
		}}
	case task.Execute:
		e = map[string]any{"execute_step_request": map[string]any{
			"stage_runtime_id": id, "task_id": t.ID, "start_step_request": t.Data,
		}}
	default:
		e = map[string]any{"stage_runtime_id": id}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return t.Data
	}
	return b
}

// maxAnnounced is the largest number of steps that an init announces.
const maxAnnounced = 100

// announceSteps lists the container steps in the init, so that a driver can pull
// their images early. It leaves out steps with an expression, because the init may
// not see the values that the step may see.
func announceSteps(init object, steps []StepRequest) {
	if !init.absent("steps") {
		return
	}
	var announced []*stage.Step
	for i := range steps {
		// Skip decoding for steps without an image, which are the most. A step that
		// spells the name in another case is not announced, but still runs.
		if !bytes.Contains(steps[i].Data, []byte(`"image"`)) {
			continue
		}
		var step stage.Step
		if json.Unmarshal(steps[i].Data, &step) != nil || step.Image == "" {
			continue
		}
		if step.ID == "" {
			step.ID = steps[i].ID
		}
		a := step.Announcement()
		if b, err := json.Marshal(a); err != nil || bytes.Contains(b, []byte("${{")) || bytes.Contains(b, []byte(`\u003c{`)) {
			continue
		}
		if announced = append(announced, a); len(announced) == maxAnnounced {
			break
		}
	}
	if len(announced) > 0 {
		init.setDefault("steps", announced)
	}
}
