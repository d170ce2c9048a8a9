package drivertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// ReportVariable names a folder that [Run] leaves a [Report] in, as <name>.json,
// for targets that have a name.
const ReportVariable = "DLITE_CONFORMANCE_DIR"

// Report says what a run of the suite has shown.
type Report struct {
	Name  string        `json:"name"`
	Cases []CaseOutcome `json:"cases"`
}

// CaseOutcome is what became of a case.
type CaseOutcome struct {
	Name string `json:"name"`
	Spec string `json:"spec"`
	// Passed is false for a case that failed or was not run.
	Passed bool `json:"passed"`
	// Lacks are the capabilities for want of which it was not run.
	Lacks []Capability `json:"lacks,omitempty"`
}

// recorder keeps the outcomes of a run.
type recorder struct {
	mu       sync.Mutex
	outcomes map[string]CaseOutcome // by name; guarded by mu
}

func (r *recorder) keep(o CaseOutcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o.Name] = o
}

// write leaves the report, where one is wanted.
func (r *recorder) write(tb testing.TB, name string) {
	dir := os.Getenv(ReportVariable)
	if dir == "" || name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Name: name}
	for _, c := range cases() {
		o, ok := r.outcomes[c.name]
		if !ok {
			o = CaseOutcome{Name: c.name, Spec: c.spec}
		}
		report.Cases = append(report.Cases, o)
	}
	b, err := json.MarshalIndent(report, "", "\t")
	if assert.NoError(tb, err) {
		assert.NoError(tb, os.WriteFile(filepath.Join(dir, name+".json"), b, 0o600))
	}
}
