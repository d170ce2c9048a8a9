package secrets

import (
	"fmt"

	"github.com/delegate-io/dlite/internal/dotenv"
)

// dotenvVariable returns the value of a variable in a dotenv file ([dotenv.Settings]). If a name occurs
// several times, the last line counts, as in a shell. Errors show no part of the text.
func dotenvVariable(text, name string) (value string, err error) {
	found := false
	for e := range dotenv.Entries(text, dotenv.Settings) {
		if e.Err != nil {
			return "", fmt.Errorf("the file is not a dotenv file: line %d: %w", e.Line, e.Err)
		}
		if e.Name == name {
			value, found = e.Value, true
		}
	}
	if !found {
		return "", fmt.Errorf("%w: it has no field %q", ErrNotFound, name)
	}
	return value, nil
}
