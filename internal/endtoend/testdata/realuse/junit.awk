# Makes a JUnit report of lines such as "#12 What it is about: PASSED".
function xml(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/"/, "\\&quot;", s); return s }
BEGIN { printf "<?xml version=\"1.0\"?>\n<testsuite name=\"%s\">\n", suite }
{ gsub(/\033\[[0-9;]*m/, "") }
/^#[0-9]+ .*: (PASSED|FAILED)$/ {
  failed = /FAILED$/
  name = $0
  sub(/: (PASSED|FAILED)$/, "", name)
  printf "<testcase classname=\"%s\" name=\"%s\">%s</testcase>\n", suite, xml(name), failed ? "<failure message=\"FAILED\"/>" : ""
}
END { print "</testsuite>" }
