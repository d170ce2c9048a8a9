package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager"
)

// budgetFlag is a flag like "works=1000,bytes=64MiB". It implements [flag.Value].
type budgetFlag struct{ manager.Budget }

func (b *budgetFlag) fields() map[string]*int {
	return map[string]*int{
		"works": &b.Works, "bytes": &b.Bytes, "delegates": &b.Delegates, "schedules": &b.Schedules, "daemons": &b.Daemons, "holds": &b.Holds, "streams": &b.Streams,
		"perpetual": &b.Perpetual,
	}
}

// String returns the fields that are set.
func (b *budgetFlag) String() string {
	var set []string
	for _, name := range []string{"works", "bytes", "delegates", "schedules", "daemons", "holds", "streams", "perpetual"} {
		if n := *b.fields()[name]; n != 0 {
			set = append(set, name+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(set, ",")
}

// Set parses a budget. Numbers may end with KiB, MiB or GiB. A negative number is no bound.
func (b *budgetFlag) Set(text string) error {
	*b = budgetFlag{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		field := b.fields()[strings.TrimSpace(name)]
		if field == nil {
			return fmt.Errorf("%q is unknown; a budget has works, bytes, delegates, schedules, daemons, holds, streams and perpetual", name)
		}
		n, err := parseSize(strings.TrimSpace(value))
		if err != nil || n == 0 {
			return fmt.Errorf("%s is %q; it must be a number such as 1000 or 64MiB, or -1 for no bound", name, value)
		}
		*field = n
	}
	return nil
}

// sizeFlag is a number of bytes, such as 64MiB. It implements [flag.Value].
type sizeFlag int

// String returns the number without a unit, unless it is of whole MiB.
func (s *sizeFlag) String() string {
	if n := int(*s); n == 0 || n%(1<<20) != 0 {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(int(*s)>>20) + "MiB"
}

// Set parses a positive size.
func (s *sizeFlag) Set(text string) error {
	n, err := parseSize(strings.TrimSpace(text))
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a size; it must be a number of bytes such as 1000000 or 64MiB", text)
	}
	*s = sizeFlag(n)
	return nil
}

func parseSize(text string) (int, error) {
	for unit, factor := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseInt(number, 10, 32)
			return int(n) * factor, err
		}
	}
	return strconv.Atoi(text)
}
