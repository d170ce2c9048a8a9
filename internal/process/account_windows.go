package process

import "fmt"

// Account is a user to run a process as. There is none on Windows.
type Account struct {
	Name, Home string
}

// FindAccount returns an error for every user except "".
func FindAccount(spec string) (*Account, error) {
	if spec == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("user %q: steps on a Windows host run as the delegate's user", spec)
}
