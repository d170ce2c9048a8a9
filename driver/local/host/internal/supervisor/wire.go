package supervisor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/delegate-io/dlite/internal/process"
)

// A driver and a supervisor exchange frames: a kind, a length in four bytes, and the content.
const (
	FrameOutput byte = 'o' // output of the step
	frameJSON   byte = 'j' // a call to the supervisor, or an event from it
)

// maxFrame limits a frame. The kernel limits the variables of a process to less.
const maxFrame = 16 << 20

// Call is a message to a supervisor. A connection begins with Run, Attach or End. The other calls concern
// the step of the connection. Each of them ends the check that runs.
type Call struct {
	// Run starts a step and sends its output.
	Run *Order `json:"run,omitempty"`
	// Attach sends the output of a step with this id from the beginning. If there is none, the supervisor
	// does not start it any more.
	Attach string `json:"attach,omitempty"`
	// End stops the step Only, or all steps, and waits for the end.
	End  *process.Patience `json:"end,omitempty"`
	Only string            `json:"only,omitempty"`

	Stop  *process.Patience `json:"stop,omitempty"`
	Check []string          `json:"check,omitempty"` // a command of a readiness check
}

// Order describes a process to start. With Own, it runs the program of the driver that started the supervisor.
type Order struct {
	ID     string   `json:"id"`
	Args   []string `json:"args"`
	Own    bool     `json:"own,omitempty"`
	Dir    string   `json:"dir"`
	Env    []string `json:"env"`
	User   string   `json:"user,omitempty"`
	Detach bool     `json:"detach,omitempty"`
}

// Event is a message of a supervisor. Error ends the connection.
type Event struct {
	Started *time.Time `json:"started,omitempty"`
	Exited  *Exit      `json:"exited,omitempty"`
	Checked *Checked   `json:"checked,omitempty"`
	Ended   *int       `json:"ended,omitempty"`
	Done    bool       `json:"done,omitempty"`
	Error   string     `json:"error,omitempty"`
	// NoAccess is set with an Error that means missing permissions, Unknown with an Error about a step
	// that the supervisor does not know.
	NoAccess bool `json:"no_access,omitempty"`
	Unknown  bool `json:"unknown,omitempty"`
}

// Exit is how the first process of a step ended.
type Exit struct {
	Code int `json:"code"`
	// Remains is set if other processes of the step run.
	Remains bool `json:"remains,omitempty"`
}

// Checked is the result of the command of a readiness check.
type Checked struct {
	Code   int    `json:"code"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

func writeFrame(w io.Writer, kind byte, content []byte) error {
	b := make([]byte, 5, 5+len(content))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(content)))
	_, err := w.Write(append(b, content...))
	return err
}

// Send writes v as one frame.
func Send(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxFrame {
		err = fmt.Errorf("%d bytes are more than a supervisor accepts", len(b))
	}
	if err != nil {
		return err
	}
	return writeFrame(w, frameJSON, b)
}

// ReadFrame reads a frame into buf, or into a larger slice.
func ReadFrame(r io.Reader, buf []byte) (kind byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is too large", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err = io.ReadFull(r, buf)
	return head[0], buf, err
}

// Receive reads a frame that must have JSON for v.
func Receive(r io.Reader, v any) error {
	kind, content, err := ReadFrame(r, nil)
	if err != nil {
		return err
	}
	if kind != frameJSON {
		return fmt.Errorf("a frame has kind %q", kind)
	}
	return json.Unmarshal(content, v)
}
