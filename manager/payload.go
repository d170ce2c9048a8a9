package manager

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// object is a JSON object whose values stay the text they are: a number that
// went through a float64 would come out as another one.
type object map[string]json.RawMessage

// parseObject reads a payload; nothing and null are an empty object.
func parseObject(what string, b json.RawMessage) (object, error) {
	o := object{}
	if b = bytes.TrimSpace(b); len(b) == 0 || string(b) == "null" {
		return o, nil
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("%w: %s is not a JSON object", ErrInvalid, what)
	}
	return o, nil
}

// absent tells whether a member is missing, null or an empty string.
func (o object) absent(name string) bool {
	v := o[name]
	return len(v) == 0 || string(v) == "null" || string(v) == `""`
}

// text is a member that is a string, or empty.
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o[name], &s)
	return s
}

// seconds is a member that counts whole seconds, in milliseconds; 0 when it is
// absent or something else.
func (o object) seconds(name string) task.Millis {
	const most = math.MaxInt64 / 1000
	var n task.Millis
	if json.Unmarshal(o[name], &n) != nil {
		return 0
	}
	return min(max(n, 0), most) * 1000
}

// setDefault sets a member that is absent.
func (o object) setDefault(name string, v any) {
	if o.absent(name) {
		o[name], _ = json.Marshal(v) // strings and empty objects always encode
	}
}

// encode is the payload, the same for the same members.
func (o object) encode() (json.RawMessage, error) { return json.Marshal(o) }

// payload reads a payload into its usual form, which is the same for the same
// members, and returns what fill makes of it.
func payload(what string, raw *json.RawMessage, fill func(object) error) (json.RawMessage, error) {
	o, err := parseObject(what, *raw)
	if err != nil {
		return nil, err
	}
	if *raw, err = o.encode(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, what, err)
	}
	if err := fill(o); err != nil {
		return nil, err
	}
	return o.encode()
}

// ties are the ids under which the tasks of a stage belong together.
type ties struct{ group, network string }

// fillInit completes the init's payload and finds the ids that the other ones
// need.
func fillInit(o object, id string) (ties, error) {
	o.setDefault("group_id", id)
	t := ties{group: o.text("group_id")}
	if t.group == "" {
		return t, fmt.Errorf("%w: init.group_id is not a string", ErrInvalid)
	}
	if t.network = o.text("network"); t.network != "" {
		return t, nil
	}
	if o.absent("network") {
		delete(o, "network")
	}
	network, err := parseObject("init.network", o["network"])
	if err != nil {
		return t, err
	}
	network.setDefault("id", id)
	if t.network = network.text("id"); t.network == "" {
		return t, fmt.Errorf("%w: init.network.id is not a string", ErrInvalid)
	}
	o["network"], err = network.encode()
	return t, err
}

// fillStep completes a step's payload. A foreign agent hangs without an
// environment (PROTOCOL 5).
func fillStep(o object, s *StepRequest, t ties) {
	o.setDefault("id", s.ID)
	o.setDefault("name", s.Name)
	o.setDefault("environment", struct{}{})
	o.setDefault("group_id", t.group)
	o.setDefault("network", t.network)
}

// fillLog sends what a payload's task has to say to the manager's log service
// under key, unless the payload names one, and returns the key of its log.
func (m *Manager) fillLog(o object, n *run, key string) string {
	if m.cfg.Logs != nil && o.absent("log_config") {
		if c := m.cfg.Logs(n.account, key[:strings.IndexByte(key, '/')+1]); c != nil {
			o.setDefault("log_config", c)
			o.setDefault("log_key", key)
		}
	}
	return o.text("log_key")
}

// logConfig is the log service that a payload names, nil without one.
func (o object) logConfig() *stage.LogConfig {
	var c stage.LogConfig
	if json.Unmarshal(o["log_config"], &c) != nil || c.URL == "" {
		return nil
	}
	return &c
}

// initLog stands for the init where a log's key has a step.
const initLog = ":init"

// initLogKey names the log of a stage's init as logKey does that of a step, and
// so that no step of the account has the same.
func initLogKey(stageID string) string {
	stage := plain(stageID)
	k := stage + "/" + initLog
	if stage != stageID {
		k += ":" + digestOf("init:"+stageID)
	}
	return k
}

// logKey names the log of a step with the characters that every writer passes on
// as they are (PROTOCOL 4), and so that no two steps of an account have the same.
func logKey(stageID, step string) string {
	k := plain(stageID) + "/" + plain(step)
	if raw := stageID + "/" + step; k != raw || step == initLog {
		k += ":" + digestOf(strconv.Itoa(len(stageID))+":"+raw)
	}
	return k
}

// plain puts "_" for what a key cannot have.
func plain(s string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(":._-", r):
			return r
		}
		return '_'
	}, s), "..", "__")
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func fillCleanup(o object, t ties) {
	o.setDefault("group_id", t.group)
	o.setDefault("network", t.network)
}
