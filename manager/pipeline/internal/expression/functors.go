package expression

import (
	"errors"
	"fmt"
	"strings"
)

// functor is a function with a fixed name. If lazy is nil, run gets the values of the arguments.
type functor struct {
	least, most int
	run         func(ev *evaluation, args []any) (any, error)
	lazy        func(ev *evaluation, args []node) (any, error)
}

// functorNames are the first parts of the names of functors. A call of another method of them is
// an error. A member of them is an ordinary name.
var functorNames = map[string]bool{
	"json": true, "xml": true, "regex": true, "datetime": true, "expression": true, "secrets": true,
	"exportedVariables": true,
}

var functors = map[string]*functor{
	"currentDate":          {run: currentDate},
	"currentTime":          {run: currentTime},
	"datetime.currentDate": {run: currentDate},
	"datetime.currentTime": {run: currentTime},

	"regex.extract": {least: 2, most: 2, run: regexExtract},
	"regex.match":   {least: 2, most: 2, run: regexMatch},
	"regex.replace": {least: 3, most: 3, run: regexReplace},

	"json.select": {least: 2, most: 2, run: jsonSelect},
	"json.object": {least: 1, most: 2, run: jsonObject},
	"json.list":   {least: 2, most: 2, run: jsonList},
	"json.format": {least: 1, most: 1, run: jsonFormat},
	"xml.select":  {least: 2, most: 2, run: xmlSelect},

	"exportedVariables.getValue": {least: 1, most: 1, run: exportedValue},

	"expression.isResolved": {least: 1, most: 1, lazy: isResolved},
	"secrets.getValue":      {least: 1, most: 1, run: secretValue},
	"secrets.secretJson":    {least: 1, most: 9, run: secretJSON},
}

func (x *function) eval(ev *evaluation) (any, error) {
	if x.run.lazy != nil {
		v, err := x.run.lazy(ev, x.args)
		return v, at(err, x.offset)
	}
	args := make([]any, len(x.args))
	for i, a := range x.args {
		var err error
		if args[i], err = ev.value(a); err != nil {
			return nil, err
		}
	}
	v, err := x.run.run(ev, args)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			err = &Error{Offset: x.offset, Text: fmt.Sprintf("the function %s: %v", x.name, err)}
		} else if e.Offset == 0 {
			e.Offset = x.offset
		}
	}
	return v, err
}

// textArguments returns arguments as texts.
func (ev *evaluation) textArguments(args []any) ([]string, error) {
	list := make([]string, len(args))
	for i, a := range args {
		var err error
		if list[i], err = ev.scalarText(a, fmt.Sprintf("argument %d", i+1)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func currentDate(ev *evaluation, _ []any) (any, error) {
	return moment{ev.env.Time.UTC(), true}, nil
}

func currentTime(ev *evaluation, _ []any) (any, error) {
	return moment{ev.env.Time.UTC(), false}, nil
}

// isResolved reports whether the names of an expression are known and its value is not null.
func isResolved(ev *evaluation, args []node) (any, error) {
	v, err := ev.value(args[0])
	if isUnresolved(err) {
		return false, nil
	}
	return v != nil, err
}

// exportedValue returns the value of a name such as pipeline.ALIAS.OUTPUT: an output that a step exports.
func exportedValue(ev *evaluation, args []any) (any, error) {
	name, err := ev.scalarText(args[0], "the name of an exported variable")
	if err != nil {
		return nil, err
	}
	x := &path{parts: append([]string{"exportedVariables"}, strings.Split(name, ".")...)}
	return x.eval(ev)
}

func secretValue(ev *evaluation, args []any) (any, error) {
	id, err := ev.scalarText(args[0], "the id of a secret")
	if err != nil {
		return nil, err
	}
	return ev.secret(id)
}

const maxSecret = 2048 // bytes, as package secrets has it

// secret returns the reference to a secret.
func (ev *evaluation) secret(id string) (any, error) {
	if ev.env.Secrets == Refuse {
		return nil, fmt.Errorf("the secret %q is not allowed here: its value would show; use it in a step only", shorten(id, 80))
	}
	if id == "" || len(id) > maxSecret || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("\"'`\\{}<>", r) }) {
		return nil, fmt.Errorf("the id of the secret %q is not valid: it must have 1 to %d characters, and no white space, quotes, backslashes, braces, < or >", shorten(id, 80), maxSecret)
	}
	return reference(id), ev.spend(len(id))
}

// secretJSON would read inside the value of a secret.
func secretJSON(*evaluation, []any) (any, error) {
	return nil, errors.New("the value of a secret is not known here: keep the member as a secret of its own")
}
