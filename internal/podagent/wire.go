package podagent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TokenOf returns the token with which the agent of a container authenticates at the hub.
// It cannot be computed from the token of another container.
func TokenOf(hub, container string) string {
	mac := hmac.New(sha256.New, []byte(hub))
	mac.Write([]byte(container))
	return hex.EncodeToString(mac.Sum(nil))
}

// Names is the body of POST /names, and the answer to GET /names. It has the names in
// /etc/hosts of all containers of the pod.
type Names struct {
	Hosts []Host `json:"hosts"`
	// Fixed means, in an answer, that the hub may not change the file. The hub stores
	// the names, but containers cannot resolve them.
	Fixed bool `json:"fixed,omitempty"`
}

// Host is a name and its address.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Service means that the name belongs to a background step.
	Service bool `json:"service,omitempty"`
	// ClusterName and ClusterIP are the name and the address by which other pods of the cluster reach the step. They are
	// empty without a Service of the cluster.
	ClusterName string `json:"cluster_name,omitempty"`
	ClusterIP   string `json:"cluster_ip,omitempty"`
}

// Spare is the body of POST /spares. It asks for a spare volume of the pod for a volume that
// the init did not name. The same id always gets the same spare volume.
type Spare struct {
	ID string   `json:"id"`
	Of []string `json:"of"`
}

// Spared is the answer to [Spare]. If Name is empty, no spare volume is free.
type Spared struct {
	Name string `json:"name"`
}

// Claim is the body of POST /claims/<container>, which reserves a container for one step. A
// repeated claim by the same step succeeds.
type Claim struct {
	By string `json:"by,omitempty"`
}

// Claimed is the answer to [Claim].
type Claimed struct {
	OK bool `json:"ok"`
}

// HeaderLost marks an answer of the hub itself: the agent of the container has ended and
// cannot be reached.
const HeaderLost = "Dlite-Lost"

// hello is the first line that the agent of a step sends.
type hello struct {
	Container string `json:"container"`
	Token     string `json:"token"`
}

const welcome = "welcome\n"
