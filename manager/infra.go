package manager

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// infra are the task types of an infrastructure, the preferred first: init,
// execute and cleanup. It is nil for one that is unknown.
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

// enveloped puts a payload into the envelope that its type wants. The payload
// stays the text that it is.
func enveloped(t *task.Task, account string) json.RawMessage {
	if !strings.HasPrefix(t.Type, task.DliteVMPrefix) {
		return t.Data
	}
	o, err := parseObject("the payload", t.Data)
	if err != nil {
		return t.Data // it was an object when it was submitted
	}
	var network stage.Network
	_ = json.Unmarshal(o["network"], &network)
	pool, id := network.Options[stage.PoolOption], o.text("group_id") // which prepare has set
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

// maxAnnounced bounds how many steps an init announces.
const maxAnnounced = 100

// announce tells the init of the steps in containers that are to come, so that
// their images can be at hand. One with an expression is left out: what its step
// is allowed to know, the init need not be.
func announce(init object, steps []StepRequest) {
	if !init.absent("steps") {
		return
	}
	var told []*stage.Step
	for i := range steps {
		// A step without an image, as most are, costs no decoding. One that spells the
		// name otherwise is not announced, and runs all the same.
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
		if told = append(told, a); len(told) == maxAnnounced {
			break
		}
	}
	if len(told) > 0 {
		init.setDefault("steps", told)
	}
}
