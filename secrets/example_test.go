package secrets_test

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/delegate-io/dlite/secrets"
)

func ExampleMasker() {
	set := secrets.NewSet(secrets.Config{}, "pass", "password123")
	out := secrets.NewMasker(os.Stdout, set)
	_, _ = io.WriteString(out, "logging in with pass")
	_, _ = io.WriteString(out, "word123\n")
	set.Add("late-value")
	_, _ = io.WriteString(out, "got late-value, in base64 bGF0ZS12YWx1ZQ==\n")
	_ = out.Close()
	// Output:
	// logging in with ******
	// got ******, in base64 ******
}

func ExampleSet_Mask() {
	set := secrets.NewSet(secrets.Config{}, "visibly-fake")
	err := errors.New("no answer from https://me:visibly-fake@example.com")
	fmt.Println(set.Mask(err.Error()))
	fmt.Println(set)
	// Output:
	// no answer from https://me:******@example.com
	// secrets.Set(1 values)
}
