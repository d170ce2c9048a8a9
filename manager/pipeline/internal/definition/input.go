package definition

import "strings"

const inputMark = "<+input>"

// isInput reports whether a value is a runtime input: <+input> with its modifiers.
func isInput(n *Node) bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	text, ok := n.Value.(string)
	return ok && strings.HasPrefix(strings.TrimSpace(text), inputMark)
}
