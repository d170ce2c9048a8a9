package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// command is a change of the state. Exactly one of its pointers is set. The sender
// chooses all values in it, including ids, so that executing it is deterministic.
// Later versions read stored commands: a member keeps its name and meaning.
type command struct {
	Account string `json:"account,omitempty"`

	Configure   *settings           `json:"configure,omitempty"`
	Tick        *struct{}           `json:"tick,omitempty"`
	Register    *queue.Registration `json:"register,omitempty"`
	Heartbeat   *queue.Registration `json:"heartbeat,omitempty"`
	Unregister  *idCommand          `json:"unregister,omitempty"`
	Capacity    *capacityCommand    `json:"capacity,omitempty"`
	Acquire     *acquireCommand     `json:"acquire,omitempty"`
	Answer      *answerCommand      `json:"answer,omitempty"`
	SubmitStage *run                `json:"submit_stage,omitempty"`
	AbortStage  *idCommand          `json:"abort_stage,omitempty"`
	SubmitTask  *submitTaskCommand  `json:"submit_task,omitempty"`
	AbortTask   *idCommand          `json:"abort_task,omitempty"`

	AppendSteps *appendCommand    `json:"append_steps,omitempty"`
	FinishStage *idCommand        `json:"finish_stage,omitempty"`
	RenewStage  *idCommand        `json:"renew_stage,omitempty"`
	AbortStep   *abortStepCommand `json:"abort_step,omitempty"`

	Lead     *idCommand     `json:"lead,omitempty"`
	SetLimit *api.Limit     `json:"set_limit,omitempty"`
	Drain    *switchCommand `json:"drain,omitempty"`
	Unaware  *switchCommand `json:"unaware,omitempty"`
	Pause    *switchCommand `json:"pause,omitempty"`

	SetSchedule    *api.Schedule `json:"set_schedule,omitempty"`
	DeleteSchedule *idCommand    `json:"delete_schedule,omitempty"`
	Fire           *fireCommand  `json:"fire,omitempty"`

	SetConnector    *api.Connector `json:"set_connector,omitempty"`
	DeleteConnector *idCommand     `json:"delete_connector,omitempty"`

	SetDaemonSet     *api.DaemonSet         `json:"set_daemon_set,omitempty"`
	DeleteDaemonSet  *idCommand             `json:"delete_daemon_set,omitempty"`
	SetDaemonTask    *daemonTaskCommand     `json:"set_daemon_task,omitempty"`
	DeleteDaemonTask *dropDaemonTaskCommand `json:"delete_daemon_task,omitempty"`
	ReportDaemons    *daemonReportCommand   `json:"report_daemons,omitempty"`
	// SetUpgrade without a version ends the update of the delegates.
	SetUpgrade *api.Upgrade `json:"set_upgrade,omitempty"`
	AskUpgrade *askCommand  `json:"ask_upgrade,omitempty"`

	// OfSchedule is the schedule that a caller has triggered, for SubmitStage and SubmitTask.
	OfSchedule string `json:"of_schedule,omitempty"`

	Perpetual *perpetualCommand `json:"perpetual,omitempty"`
}

// String returns the kind of the command and its account, for logs. It contains nothing
// of a payload.
func (c *command) String() string {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return strings.TrimSpace(name + " " + c.Account)
		}
	}
	return "unknown " + c.Account
}

type capacityCommand struct {
	ID        string `json:"id"`
	MaxStages int    `json:"max_stages"`
}

type acquireCommand struct {
	Delegate string `json:"delegate"`
	Task     string `json:"task"`
}

type answerCommand struct {
	Delegate string          `json:"delegate"`
	Task     string          `json:"task"`
	Code     task.Code       `json:"code,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	// NeedsStatus makes an answer to a part of a stage a failure if it has no status.
	// Commands of rules 1 do not have it: executing them again must not change their
	// results.
	NeedsStatus bool `json:"needs_status,omitempty"`
}

type submitTaskCommand struct {
	Single single `json:"single"`
	singleWork
}

// singleWork is the part of a single task that the queue uses.
type singleWork struct {
	Task         *task.Task     `json:"task"`
	Selectors    []string       `json:"selectors,omitempty"`
	Priority     queue.Priority `json:"priority,omitempty"`
	QueueTimeout time.Duration  `json:"queue_timeout"`
}

type idCommand struct {
	ID string `json:"id"`
}

// switchCommand turns something on or off.
type switchCommand struct {
	ID       string   `json:"id,omitempty"`
	Accounts []string `json:"accounts,omitempty"`
	On       bool     `json:"on"`
	Note     string   `json:"note,omitempty"` // why, for people
}

// settings are the settings that the rules depend on. They are part of the state,
// because all managers of a store must use the same.
type settings struct {
	// Epoch is random and never changes. It distinguishes this state from all
	// others.
	Epoch            string        `json:"epoch,omitempty"`
	HeartbeatTimeout time.Duration `json:"heartbeat_timeout"`
	AcquireTimeout   time.Duration `json:"acquire_timeout"`
	AbortGrace       time.Duration `json:"abort_grace"`
	AnswerGrace      time.Duration `json:"answer_grace"`
	ForgetLost       time.Duration `json:"forget_lost"`
	Retention        time.Duration `json:"retention"`
	MaxFinished      int           `json:"max_finished"`
	MaxFinishedBytes int           `json:"max_finished_bytes"`
	// FairRetention is absent from the state of rules 4 and below. Executing the commands of
	// such a state again must not change which stages are forgotten: a later command may use the
	// id of one.
	FairRetention bool          `json:"fair_retention,omitempty"`
	MaxAttempts   int           `json:"max_attempts"`
	Gap           time.Duration `json:"gap,omitempty"`
	// PerpetualLease is absent from the state of rules 6 and below.
	PerpetualLease time.Duration `json:"perpetual_lease,omitempty"`
}

// Encode returns the command's form in the journal. Payloads keep their text.
func (c *core) Encode(cmd *command) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(cmd); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode parses the output of Encode.
func (c *core) Decode(b []byte) (*command, error) {
	var cmd command
	if err := json.Unmarshal(b, &cmd); err != nil {
		return nil, fmt.Errorf("reading a command: %w", err)
	}
	return &cmd, nil
}
