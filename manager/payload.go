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

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// object is a JSON object whose values keep their text. Numbers would lose precision
// as float64.
type object map[string]json.RawMessage

// parseObject parses a payload. Empty text and null are an empty object.
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

// absent reports whether a member is missing, null or an empty string.
func (o object) absent(name string) bool {
	v := o[name]
	return len(v) == 0 || string(v) == "null" || string(v) == `""`
}

// text returns a string member; it is empty for any other value.
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o[name], &s)
	return s
}

// seconds returns a member in whole seconds as milliseconds; it is 0 for a missing
// or other value.
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

// encode returns the JSON of the object. The same members result in the same text.
func (o object) encode() (json.RawMessage, error) { return json.Marshal(o) }

// payload normalizes a payload in place, so that equal members result in equal text.
// It returns the payload as completed by fill.
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

// stageIDs are the ids that connect the tasks of a stage.
type stageIDs struct{ group, network string }

// fillInit completes the init's payload and returns the ids that the other payloads
// need.
func fillInit(o object, id string) (stageIDs, error) {
	o.setDefault("group_id", id)
	t := stageIDs{group: o.text("group_id")}
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

// fillStep completes a step's payload. A foreign agent hangs if a step has no
// environment.
func fillStep(o object, s *api.StepRequest, t stageIDs, infra string) {
	o.setDefault("id", s.ID)
	o.setDefault("name", s.Name)
	o.setDefault("environment", struct{}{})
	o.setDefault("group_id", t.group)
	if infra != "vm" { // there an empty network is the stage's, with the aliases of its services
		o.setDefault("network", t.network)
	}
}

// fillLog sends a payload's log to the manager's log service under key, unless the
// payload names a log service. It returns the key of the payload's log. It fails if the
// submitter chose a key that the token for the log service does not cover. Path is the
// path of the payload.
func (m *Manager) fillLog(o object, n *run, path, key string) (string, error) {
	if err := checkSize(path+".log_key", len(o.text("log_key")), maxName); err != nil || m.cfg.Logs == nil || !o.absent("log_config") {
		return o.text("log_key"), err
	}
	prefix := key[:strings.IndexByte(key, '/')+1]
	c := m.cfg.Logs(n.account, n.ID, prefix)
	if c == nil {
		return o.text("log_key"), nil
	}
	o.setDefault("log_config", c)
	o.setDefault("log_key", key)
	if own := o.text("log_key"); !strings.HasPrefix(own, prefix) {
		return "", fmt.Errorf("%w: %s.log_key is %q; without a log_config it must begin with %q, because the stage can write no other logs",
			ErrInvalid, path, cut(own, maxPathName), prefix)
	}
	return o.text("log_key"), nil
}

// logConfig returns the log service that a payload names, or nil.
func (o object) logConfig() *stage.LogConfig {
	var c stage.LogConfig
	if json.Unmarshal(o["log_config"], &c) != nil || c.URL == "" {
		return nil
	}
	return &c
}

// initLog takes the place of the step's id in the key of an init's log.
const initLog = ":init"

// initLogKey returns the key of the log of a stage's init. No step of the account
// has the same key.
func initLogKey(stageID string) string {
	stage := safeKey(stageID)
	k := stage + "/" + initLog
	if stage != stageID {
		k += ":" + digestOf("init:"+stageID)
	}
	return k
}

// logKey returns the key of a step's log. It contains only characters that every log
// writer passes on unchanged. No two steps of an account have the same key.
func logKey(stageID, step string) string {
	k := safeKey(stageID) + "/" + safeKey(step)
	if raw := stageID + "/" + step; k != raw || step == initLog {
		k += ":" + digestOf(strconv.Itoa(len(stageID))+":"+raw)
	}
	return k
}

// safeKey replaces each character that a key may not contain by "_".
func safeKey(s string) string {
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

func fillCleanup(o object, t stageIDs) {
	o.setDefault("group_id", t.group)
	o.setDefault("network", t.network)
}

// delegateVariable is the variable of a step that contains the id of the delegate that runs the stage.
const delegateVariable = "HARNESS_DELEGATE_ID"

// withDelegate sets [delegateVariable] in the payload of an appended step, unless the step
// sets it. A step is sent after its init, so the delegate is known.
func withDelegate(data json.RawMessage, delegate string) json.RawMessage {
	o, err := parseObject("the payload", data)
	if err != nil || delegate == "" {
		return data // the check of the appended step ensures an object
	}
	env := map[string]json.RawMessage{}
	if !o.absent("environment") && json.Unmarshal(o["environment"], &env) != nil {
		return data // the delegate reports it
	}
	if _, ok := env[delegateVariable]; ok {
		return data
	}
	env[delegateVariable], _ = json.Marshal(delegate)
	o["environment"], _ = json.Marshal(env)
	if completed, err := o.encode(); err == nil {
		return completed
	}
	return data
}
