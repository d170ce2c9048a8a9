package journal

import (
	"encoding/binary"
	"fmt"
)

// The body of an entry consists of its commands, each preceded by its length.

func appendCommand(body, command []byte) []byte {
	body = binary.AppendUvarint(body, uint64(len(command)))
	return append(body, command...)
}

// splitCommands returns the commands of a body. They share the memory of the body.
func splitCommands(body []byte) ([][]byte, error) {
	var all [][]byte
	for len(body) > 0 {
		size, n := binary.Uvarint(body)
		if n <= 0 || size > uint64(len(body)-n) {
			return nil, fmt.Errorf("%w: a command is cut off", ErrDamaged)
		}
		end := n + int(size) //nolint:gosec // not beyond the body
		all = append(all, body[n:end:end])
		body = body[end:]
	}
	return all, nil
}
