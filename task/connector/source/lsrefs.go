package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// This file has the part of Git's wire protocol, version 2, that lists refs: packets with a length in four hexadecimal
// digits, and the command ls-refs.

const (
	// maxListing bounds the answer of a server to a listing, in bytes.
	maxListing = 32 << 20
	maxPacket  = 65520
)

// Special packets.
const (
	flushPacket = "0000"
	delimPacket = "0001"
)

func packet(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// lsRefs returns the request for the refs that begin with one of the prefixes. Format is sha1 or sha256.
func lsRefs(format string, prefixes []string) []byte {
	var b bytes.Buffer
	b.WriteString(packet("command=ls-refs\n"))
	b.WriteString(packet("agent=dlite\n"))
	if format != "" && format != "sha1" {
		b.WriteString(packet("object-format=" + format + "\n"))
	}
	b.WriteString(delimPacket)
	b.WriteString(packet("peel\n"))
	for _, p := range prefixes {
		b.WriteString(packet("ref-prefix " + p + "\n"))
	}
	b.WriteString(flushPacket)
	return b.Bytes()
}

// packets reads packets.
type packets struct{ r *bufio.Reader }

func newPackets(r io.Reader) *packets {
	return &packets{bufio.NewReader(&bounded{r: r, left: maxListing})}
}

// bounded fails when a server sends too much. io.LimitReader would end the listing silently.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the server lists more than %d bytes: watch fewer branches and tags", maxListing)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// next returns the text of a packet without its newline, or reports a special packet.
func (p *packets) next() (text string, special bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return "", false, err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil:
		return "", false, errors.New("the answer is not one of a Git server")
	case n < 4:
		return "", true, nil
	case n > maxPacket:
		return "", false, errors.New("the answer has a packet that is too large")
	}
	body := make([]byte, n-4)
	if _, err := io.ReadFull(p.r, body); err != nil {
		return "", false, io.ErrUnexpectedEOF
	}
	text = strings.TrimSuffix(string(body), "\n")
	if problem, refused := strings.CutPrefix(text, "ERR "); refused {
		return "", false, &serverError{problem}
	}
	return text, false, nil
}

// serverError is an error that a Git server reports in the protocol.
type serverError struct{ text string }

func (e *serverError) Error() string { return "the Git server refuses: " + printable(e.text) }

// printable shortens a text from outside for an error.
func printable(text string) string {
	const most = 200
	text = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

var objectID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// setRef adds a line of a listing: an id, a name, and attributes. keep selects names.
func setRef(refs map[string]string, line string, keep func(string) bool) error {
	fields := strings.Split(line, " ")
	if len(fields) < 2 {
		return errors.New("the answer is not a list of refs")
	}
	id, name := fields[0], fields[1]
	if id == "unborn" || !keep(name) {
		return nil
	}
	for _, attribute := range fields[2:] {
		if peeled, ok := strings.CutPrefix(attribute, "peeled:"); ok {
			id = peeled
		}
	}
	if !objectID.MatchString(id) {
		return errors.New("the answer has a ref without the id of an object")
	}
	refs[name] = id
	return nil
}

// readRefs reads the answer to lsRefs.
func readRefs(p *packets, keep func(string) bool) (map[string]string, error) {
	refs := map[string]string{}
	for {
		line, special, err := p.next()
		if err != nil {
			return nil, unexpected(err)
		}
		if special {
			return refs, nil
		}
		if err := setRef(refs, line, keep); err != nil {
			return nil, err
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// advertisement contains the announcements of a server at the start of a conversation.
type advertisement struct {
	version2 bool
	format   string            // of object ids, sha1 by default
	refs     map[string]string // of a server without version 2
}

// readAdvertisement reads an announcement. Servers without version 2 list all refs in it.
func readAdvertisement(p *packets, keep func(string) bool) (*advertisement, error) {
	a := &advertisement{format: "sha1", refs: map[string]string{}}
	for first := true; ; {
		line, special, err := p.next()
		switch {
		case err != nil:
			return nil, unexpected(err)
		case special && first:
			continue // after the line "# service"
		case special:
			return a, nil
		case strings.HasPrefix(line, "# service=") && first, line == "version 1":
			continue
		case line == "version 2" && first:
			a.version2 = true
		case a.version2:
			if format, ok := strings.CutPrefix(line, "object-format="); ok {
				a.format = format
			}
		default:
			if err := a.add(line, keep); err != nil {
				return nil, err
			}
		}
		first = false
	}
}

// add adds a ref of a server without version 2. The commit of an annotated tag follows it, with ^{} after the name.
func (a *advertisement) add(line string, keep func(string) bool) error {
	line, _, _ = strings.Cut(line, "\x00")
	id, name, ok := strings.Cut(line, " ")
	if ok && name == "capabilities^{}" {
		return nil // the repository is empty
	}
	if tag, peeled := strings.CutSuffix(name, "^{}"); peeled {
		name = tag
	}
	return setRef(a.refs, id+" "+name, keep)
}
