package host

import (
	"encoding/json"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// separate makes supervisors start the steps of the driver, if that is possible. It logs what steps can
// reach.
func (d *Driver) separate() {
	log := &d.shared.Config.Log
	if supervised.Load() == nil {
		log.Warn().Msg("host steps are not separated: a step can read and end the processes and files of other stages and of the delegate; " +
			"call host.Supervise first in the program's main, or set Trusted")
		return
	}
	s, err := newSupervision(d.shared)
	if err != nil {
		log.Warn().Err(err).Msg("host steps cannot be separated on this machine: " +
			"a step can read and end the processes and files of other stages and of the delegate")
	}
	d.supervision = s
}

// supervisedStep is the part of the record of a step's process that another driver needs.
type supervisedStep struct {
	// Supervisor is nil if the driver itself started the process.
	Supervisor *steps.Supervisor `json:"supervisor,omitempty"`
	// Files is the name of the step's files ([steps.Files]).
	Files string `json:"files,omitempty"`
	// Lines is how many lines the driver printed before the output of the step.
	Lines int `json:"lines,omitempty"`
}

// readSupervised reads a record. Without a supervisor, or with a damaged record, the result is empty.
func readSupervised(r driver.Resource) (s supervisedStep) {
	if r.Kind == steps.KindProcess && len(r.Data) > 0 && json.Unmarshal(r.Data, &s) != nil {
		return supervisedStep{}
	}
	return s
}
