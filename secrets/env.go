package secrets

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// Env returns a provider for environment variables (rule S1). It is safe for
// concurrent use. Its references have the forms
//
//	${{secrets.env://NAME}}
//	${{secrets.env://NAME#field}}
//
// NAME stands for the variable prefix+NAME. An empty prefix means
// "DLITE_SECRET_". With a field, the variable holds a JSON object, see [Field].
//
// The prefix selects the variables that tasks may read. Without it, each task
// could read the whole environment of the delegate, its token included.
func Env(prefix string) ProviderFunc {
	if prefix == "" {
		prefix = "DLITE_SECRET_"
	}
	return func(_ context.Context, ref *url.URL) (string, error) {
		name := ref.Host
		if name == "" || ref.Path != "" || ref.RawQuery != "" {
			return "", errors.New("it must be of the form env://NAME or env://NAME#field")
		}
		v, ok := os.LookupEnv(prefix + name)
		if !ok {
			return "", fmt.Errorf("%w: the delegate has no variable %s%s", ErrNotFound, prefix, name)
		}
		return Field(v, ref.Fragment)
	}
}
