package program

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/joho/godotenv"
)

// ReadSettings reads a file with one NAME="value" a line. Its errors quote no line,
// because a line may hold a secret. An empty file name means no settings.
func ReadSettings(file string) (map[string]string, error) {
	if file == "" {
		return map[string]string{}, nil
	}
	values, err := godotenv.Read(file)
	var path *os.PathError
	switch {
	case errors.As(err, &path):
		return nil, fmt.Errorf("reading %s: %w", file, path.Err)
	case err != nil:
		return nil, fmt.Errorf(`reading %s: a line is not of the form NAME="value"`, file)
	}
	return values, nil
}

// CheckNames returns an error for each name of a settings file whose canonical form is not
// valid. The error suggests the nearest valid name, or else the command list, which prints all
// names.
func CheckNames(file string, settings map[string]string, valid []string, canonical func(name string) string, list string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if slices.Contains(valid, canonical(name)) {
			continue
		}
		if near := Nearest(canonical(name), valid); near != "" {
			errs = append(errs, fmt.Errorf("%s: unknown setting %s: did you mean %s?", file, name, near))
		} else {
			errs = append(errs, fmt.Errorf("%s: unknown setting %s: %s lists the valid ones", file, name, list))
		}
	}
	return errors.Join(errs...)
}

// Nearest returns the valid name with the smallest edit distance to name, or "" if
// every name differs in more than a third of its letters.
func Nearest(name string, valid []string) string {
	nearest, least := "", len(name)/3+1
	for _, v := range valid {
		if d := levenshtein.ComputeDistance(strings.ToUpper(name), strings.ToUpper(v)); d < least {
			nearest, least = v, d
		}
	}
	return nearest
}
