package manager

import (
	"bytes"
	"encoding/json"

	"github.com/delegate-io/dlite/manager/api"
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

// maxAnnounced is the largest number of steps that an init announces.
const maxAnnounced = 100

// announceSteps lists the container steps in the init, so that a driver can pull
// their images early. It leaves out steps with an expression, because the init may
// not see the values that the step may see.
func announceSteps(init object, steps []api.StepRequest) {
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
