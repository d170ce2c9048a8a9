# Hands secrets on in every way that a step has.
mkdir -p own
printf 'OUT=it is %s\nMULTI="%s"\n' "$S_PLAIN" "$S_KEY" >> "$DRONE_OUTPUT"
printf 'HIDDEN=__B64__%s\n' "$(printf '%s' "$S_ODD" | base64 | tr -d '\n')" >> "$HARNESS_OUTPUT_FILE"
printf '%s=1\nA%s=2\n' "$S_WORD" "$S_WORD" >> "$DRONE_OUTPUT"
printf 'this is no line of it: %s\n' "$S_PLAIN" >> "$DRONE_OUTPUT"
printf 'BROKEN=__B64__%s!\n' "$S_PLAIN" >> "$DRONE_OUTPUT"
printf 'EXPORTED=prefix-%s\n%s=3\n' "$S_LONGER" "$S_WORD" >> "$DRONE_ENV"
printf 'TOKEN=%s%s\n' "$HALF" "$OTHER_HALF" >> "$HARNESS_OUTPUT_SECRET_FILE"
printf '{"kind":"file/v1","url":"http://u:%s@127.0.0.1/","key":"%s"}\n' "$S_PLAIN" "$S_LONGER" > "$PLUGIN_ARTIFACT_FILE"
VAR=$S_LONGER
{
  printf '<testsuites><testsuite name="suite %s">' "$S_PLAIN"
  printf '<testcase classname="%280s%s" name="%280s%s"><failure message="%1980s%s"/></testcase>' "" "$S_PLAIN" "" "$S_LONGER" "" "$S_PLAIN"
  printf '<testcase classname="c %s" name="n %s"><error>%1980s%s</error></testcase>' "$S_PLAIN" "$S_WORD" "" "$S_PLAIN"
  printf '<testcase classname="c" name="k"><failure><![CDATA[%s]]></failure></testcase>' "$S_KEY"
  printf '</testsuite></testsuites>\n'
} > own/report.xml
printf '<testsuites>%s' "$S_PLAIN" > "own/$S_WORD.xml"
echo "gave it all"
