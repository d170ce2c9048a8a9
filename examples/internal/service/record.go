package service

import (
	"bufio"
	"os"
	"strings"
)

// record lists the files and users that an installation made and an uninstallation removes. It is in the unit, in a section that systemd
// ignores.
type record struct {
	// Copied is the program that install copied, or empty if a package provides it.
	Copied string
	// Account is the user that install created, or empty if the user was there before.
	Account string
	// Rights are the rights of the last installation.
	Rights Rights
}

func (r record) lines() (out []string) {
	for name, value := range map[string]string{"Rights": string(r.Rights)} {
		out = append(out, name+"="+value)
	}
	if r.Copied != "" {
		out = append(out, "Copied="+r.Copied)
	}
	if r.Account != "" {
		out = append(out, "Account="+r.Account)
	}
	return out
}

// readRecord returns the record of a unit. Without a unit it is empty.
func readRecord(file string) (r record, found bool) {
	f, err := os.Open(file)
	if err != nil {
		return r, false
	}
	defer f.Close() //nolint:errcheck // it was only read
	ours := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "[") {
			ours = line == "[X-Dlite]"
		}
		name, value, _ := strings.Cut(line, "=")
		switch {
		case !ours:
		case name == "Copied":
			r.Copied = value
		case name == "Account":
			r.Account = value
		case name == "Rights":
			r.Rights = Rights(value)
		}
	}
	return r, true
}
