package connector

import (
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/secrets"
)

// typeTest is the type of the task that tests a connector. Its data is a testRequest, its answer
// a testResult.
const typeTest = "connector/test"

// testRequest is the data of a task of the type typeTest.
type testRequest struct {
	Connector connector `json:"connector"`
	// TimeoutMS bounds the test, in milliseconds. 0 means 20 seconds. The most is 5 minutes.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// testResult is the result of the test of a connector (rule G3). It contains no values of secrets.
type testResult struct {
	OK bool `json:"ok"`
	// Steps has the parts of the test in their order. Only the last one can have failed.
	Steps []testStep `json:"steps"`
}

// testStep is a part of the test of a connector.
type testStep struct {
	// Name is address, secrets, name, proxy, connection, tls, host_key, answer, authentication or permission.
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message describes the observation of the test.
	Message string `json:"message"`
	// Remedy is the advice for the operator. A successful step may have one too, for example if a certificate ends soon.
	Remedy string `json:"remedy,omitempty"`
	Millis int64  `json:"millis"`
}

// The steps of a test.
const (
	stepAddress        = "address"
	stepName           = "name"
	stepProxy          = "proxy"
	stepConnection     = "connection"
	stepTLS            = "tls"
	stepHostKey        = "host_key"
	stepAnswer         = "answer"
	stepAuthentication = "authentication"
	stepPermission     = "permission"
)

// Bounds of a result.
const (
	maxSteps   = 40
	maxMessage = 1000
)

// failure is the end of a test. It is an error so that calls can return it.
type failure struct{ step, message, remedy string }

func (f *failure) Error() string { return f.message }

// fail returns the failure of a step.
func fail(step, remedy, format string, args ...any) *failure {
	return &failure{step, fmt.Sprintf(format, args...), remedy}
}

// report collects the steps of a test. It is safe for concurrent use, because a connection may be
// made in the background.
type report struct {
	set *secrets.Set

	mu    sync.Mutex
	steps []testStep // guarded by mu
	last  time.Time  // guarded by mu
	seen  map[string]bool
	ended bool
}

func newReport(set *secrets.Set) *report {
	return &report{set: set, last: time.Now(), seen: map[string]bool{}}
}

// ok adds a successful step. A step with the same message is added once.
func (r *report) ok(step, format string, args ...any) { r.advise(step, "", format, args...) }

// advise adds a successful step with something to do.
func (r *report) advise(step, remedy, format string, args ...any) {
	r.add(testStep{Name: step, OK: true, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (r *report) add(s testStep) {
	s.Message, s.Remedy = r.clean(s.Message), r.clean(s.Remedy)
	r.mu.Lock()
	defer r.mu.Unlock()
	key := s.Name + "\x00" + s.Message
	if r.ended || s.OK && (r.seen[key] || len(r.steps) >= maxSteps) {
		return
	}
	r.seen[key] = true
	now := time.Now()
	s.Millis, r.last = now.Sub(r.last).Milliseconds(), now
	r.steps = append(r.steps, s)
}

// clean masks and shortens a text. It masks first: a cut secret is not found.
func (r *report) clean(text string) string { return oneLine(r.set.Mask(text), maxMessage) }

// result ends the report.
func (r *report) result(f *failure) testResult {
	if f != nil {
		r.add(testStep{Name: f.step, Message: f.message, Remedy: f.remedy})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return testResult{OK: f == nil, Steps: r.steps}
}
