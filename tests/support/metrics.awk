# SPDX-License-Identifier: MIT
#
# metrics.awk FILE: whether a text is what Prometheus reads, by its conventions: HELP and TYPE in
# front of each family, names, units, escaped labels, buckets that add up.  A line for each offence,
# and then exit status 1.

function bad(why) { print NR ": " why ": " $0; offences++ }

/^# HELP / {
    if ($3 in help) bad("told twice")
    if (NF < 4 || $4 ~ /^[A-Z]/) bad("no help, or not a lower case phrase")
    help[$3] = 1
    next
}
/^# TYPE / {
    if (!($3 in help) || $3 in type) bad("TYPE does not follow one HELP")
    if ($3 !~ /^latentd_[a-z][a-z_]*[a-z]$/) bad("name")
    if ($4 !~ /^(counter|gauge|histogram)$/) bad("type")
    if (($4 == "counter") != ($3 ~ /_total$/)) bad("_total belongs to counters, and to all of them")
    if ($3 ~ /_(us|ms|s|kb|mb|mib|kib|microseconds|milliseconds)(_total)?$/) bad("not a base unit")
    family = $3
    type[family] = $4
    next
}
{
    name = value = $0
    sub(/[{ ].*/, "", name)
    sub(/.* /, "", value)
    labels = substr($0, length(name) + 1, length($0) - length(name) - length(value) - 1)
    series = name labels
    if (series in seen) bad("twice")
    seen[series] = 1
    if (value !~ /^-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?$/) bad("not a number")
    if (labels != "" && labels !~ /^[{][a-z]+="([^"\\]|\\["\\n])*"(,[a-z]+="([^"\\]|\\["\\n])*")*[}]$/)
        bad("labels")
    part = name
    if (type[family] == "histogram") sub(/_(bucket|sum|count)$/, "", part)
    if (part != family) bad("not of the family above")
    if (type[family] != "gauge" && value < 0) bad("less than nothing")
    if (type[family] != "histogram") next
    if (part == name) bad("neither bucket nor sum nor count")
    if (name ~ /_bucket$/) {
        le = labels
        gsub(/^[{]le="|"[}]$/, "", le)
        if (!(family in last)) { last[family] = 0; end[family] = 0 }
        if (value + 0 < last[family]) bad("fewer than in the bucket before")
        if (end[family] == "+Inf" || (le != "+Inf" && le + 0 <= end[family] + 0)) bad("buckets out of order")
        last[family] = value + 0
        end[family] = le
    }
    if (name ~ /_count$/ && (end[family] != "+Inf" || value + 0 != last[family]))
        bad("the last bucket is not +Inf with all")
    if (name ~ /_sum$/) sums[family] = 1
    if (name ~ /_count$/) counts[family] = 1
}
END {
    for (f in help) if (!(f in type)) { print f ": no TYPE"; offences++ }
    for (f in type) if (type[f] == "histogram" && !(f in sums && f in counts)) { print f ": not whole"; offences++ }
    exit offences > 0
}
