package handover

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/internal/dotenv"
)

// base64Prefix marks a value that is base64 (section 5 of docs/protocol.md).
const base64Prefix = "__B64__"

// parseOutputs reads an output file (section 5 of docs/protocol.md). It skips malformed lines. The error
// names these lines, but shows no content.
func parseOutputs(text string) (map[string]string, error) {
	vars := map[string]string{}
	var errs []error
	for e := range dotenv.Entries(text, dotenv.Data) {
		value, err := e.Value, e.Err
		if err == nil {
			value, err = decodeBase64(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", e.Line, err))
			continue
		}
		vars[e.Name] = value
	}
	return vars, errors.Join(errs...)
}

// decodeBase64 decodes a value with base64Prefix, and returns any other value unchanged.
func decodeBase64(value string) (string, error) {
	if encoded, ok := strings.CutPrefix(value, base64Prefix); ok {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
		if err != nil {
			return "", errors.New("the value is not valid base64") // err would quote it
		}
		value = string(b)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return "", errors.New("the value holds a zero byte")
	}
	return value, nil
}

// isShellName reports whether s can be the name of a shell variable.
func isShellName(s string) bool {
	return dotenv.IsName(s) && !strings.ContainsAny(s, ".-")
}
