package machine

import (
	"fmt"
	"os"

	"github.com/delegate-io/dlite/internal/dotenv"
)

// ReadSecrets reads lines ID=value.
func ReadSecrets(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for e := range dotenv.Entries(string(text), dotenv.Settings) {
		if e.Err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, e.Line, e.Err)
		}
		values[e.Name] = e.Value
	}
	return values, nil
}
