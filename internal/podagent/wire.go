package podagent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TokenOf is what the agent of a container shows to the hub. Nobody can make it of
// another container's.
func TokenOf(hub, container string) string {
	mac := hmac.New(sha256.New, []byte(hub))
	mac.Write([]byte(container))
	return hex.EncodeToString(mac.Sum(nil))
}

// Names is the body of POST /names, and the answer to GET /names: names that all
// containers of the pod find in /etc/hosts.
type Names struct {
	Hosts []Host `json:"hosts"`
	// Fixed says, in an answer, that the hub may not change that file: the names are
	// kept, and no container finds them there.
	Fixed bool `json:"fixed,omitempty"`
}

// Host is such a name.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Service says that it is a background step's.
	Service bool `json:"service,omitempty"`
}

// Spare is the body of POST /spares: a volume that a step has brought along wants
// one of the pod's spare ones. The same id always gets the same one.
type Spare struct {
	ID string   `json:"id"`
	Of []string `json:"of"`
}

// Spared answers it. There is none left where Name is empty.
type Spared struct {
	Name string `json:"name"`
}

// Claim is the body of POST /claims/<container>: a container is there for one step.
// Whoever asks again has it still.
type Claim struct {
	By string `json:"by,omitempty"`
}

// Claimed answers it.
type Claimed struct {
	OK bool `json:"ok"`
}

// HeaderLost is on an answer of the hub's own that says that a container's agent
// cannot be reached: it has ended.
const HeaderLost = "Dlite-Lost"

// hello is the first line that a step's agent sends.
type hello struct {
	Container string `json:"container"`
	Token     string `json:"token"`
}

const welcome = "welcome\n"
