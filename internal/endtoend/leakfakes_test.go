package endtoend_test

import (
	"crypto/rand"
	"strings"
)

// fakes returns the secrets. They are different in each run.
func fakes() map[string]string {
	text := func() string { return rand.Text() + rand.Text() }
	prefix := text()
	var pem strings.Builder
	for range 6 {
		pem.WriteString(strings.ToLower(rand.Text())[:20] + text()[:44] + "\n")
	}
	key := "-----BEGIN FAKE KEY-----\n" + pem.String() + "-----END FAKE KEY-----"
	return map[string]string{
		"PLAIN": text(),
		// These characters have a meaning in shells, JSON, URLs and other formats.
		"ODD":    `o"d'd\$&<` + text() + " +/%é`" + text() + `!`,
		"PREFIX": prefix, "LONGER": prefix + text(),
		"KEY": key, "CRLFKEY": strings.ReplaceAll(strings.ReplaceAll(key, "\n", "x\n"), "\n", "\r\n"),
		"EXPRESSION": "${{secrets.none}}<{" + text() + " | getAsBase64}>" + text(),
		"WORD":       "K" + text(), // usable as a variable's name
		"MASKED":     text(),
		"ENV":        text(),
		"MADE":       text(), // made by a step
		"GIT":        text(), "WRONGGIT": text(), "REGISTRY": text(), "WRONGREGISTRY": text(),
		"PLUGIN": text(),
	}
}
